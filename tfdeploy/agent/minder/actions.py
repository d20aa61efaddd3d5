"""Define the input and the output of decisions: values that decide.py, restart.py and unminded.py
share with the minder."""

from __future__ import annotations

from tfdeploy.agent import wire
from tfdeploy.agent.annotations import TYPE_CHECKING, Dict, Optional, Tuple, Union
from tfdeploy.agent.mesh.shared_state import Knowledge
from tfdeploy.agent.record import NamedTuple

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import RestartCount, Word


class OwnTask(NamedTuple):
    """One task of this host, as it is now.

    `quiet_s`: seconds since its last log line (0: unknown). `written`: False until the supervisor
    of this attempt has written its status; the status on disk is then that of the attempt before.
    `waits`: the tasks that TensorFlow says it waits for, if it has logged nothing else since.
    """

    status: wire.TaskStatus
    supervised: bool  # its supervisor is alive
    quiet_s: float = 0.0
    written: bool = True
    waits: Tuple[str, ...] = ()


class View(NamedTuple):
    """All that a decision depends on.

    `now` and `marks` are monotonic seconds. Marks: when the run was prepared, started and decided;
    the earliest start of a task ("again TASK") and of a round ("round N").
    """

    part: wire.HostPart
    phase: str
    known: Knowledge
    own: Dict[str, OwnTask]
    now: float
    marks: Dict[str, float]
    control_words: Dict[str, Word]  # start, commit, abort, stop
    silent_s: Dict[str, float] = {}  # host -> seconds since its last message, where known
    counts: Dict[str, RestartCount] = {}  # task -> restart.count_failure of its last death
    supplied: int = 1  # the gang's round for which the chief's keep has been fetched
    boot_id: Optional[str] = None
    # the processes here were gone (a reboot, say), and no other host has answered since
    rejoining: bool = False
    # host -> for how long it has refused connections to the mesh's port
    refused_s: Dict[str, float] = {}

    def rebooted(self, status: wire.TaskStatus) -> bool:
        """True if the attempt belongs to an earlier boot of this host."""
        return None not in (self.boot_id, status.boot_id) and self.boot_id != status.boot_id


class Start(NamedTuple):
    task: str
    attempt: int = 1
    round: int = 1


class EndTask(NamedTuple):
    """Send TERM to the task's processes, and KILL after `grace_s`. Repeated until the task has
    ended."""

    task: str
    reason: str
    grace_s: float


class Reap(NamedTuple):
    """The task's supervisor is dead: kill the task's remaining processes, and write its status."""

    task: str
    outcome: str
    reason: str
    attempt: int = 1
    round: int = 1


class GiveUp(NamedTuple):
    """The task has used up its restarts."""

    task: str
    reason: str


class NewRound(NamedTuple):
    """Tell all hosts that the gang restarts because `task` died."""

    n: int
    task: str


class ReportStage(NamedTuple):
    """Tell all hosts which stage of round `n` this host has reached (stages of restart.py)."""

    n: int
    stage: int


class Supply(NamedTuple):
    """Fetch the chief's keep in the background, once for each round. Repeated until it has
    arrived."""

    n: int


class ReportUnminded(NamedTuple):
    """Tell all hosts that `host` has no minder (odd `n`) or has one again (even `n`). `for_s`:
    seconds without a minder."""

    host: str
    n: int
    for_s: float = 0.0


class ReportLost(NamedTuple):
    """Tell all hosts that the tasks of `host` are lost, because it had no minder for too long."""

    host: str


class Phase(NamedTuple):
    phase: str


class Commit(NamedTuple):
    """Tell all hosts that the run is committed."""


class AbortRun(NamedTuple):
    """Tell all hosts that the run ends: `kind` is one of shared_state.ABORT_KINDS."""

    kind: str
    reason: str
    grace_s: Optional[float] = None


Action = Union[
    Start,
    EndTask,
    Reap,
    Phase,
    Commit,
    AbortRun,
    GiveUp,
    NewRound,
    ReportStage,
    Supply,
    ReportUnminded,
    ReportLost,
]
