"""Define the input and the output of decisions: the values that decide.py, restart.py and
unminded.py exchange with the minder."""

from __future__ import annotations

from tfdeploy.agent import wire
from tfdeploy.agent.annotations import TYPE_CHECKING, Dict, Optional, Tuple, Union
from tfdeploy.agent.mesh.shared_state import Knowledge
from tfdeploy.agent.record import NamedTuple

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import RestartCount, Word


class OwnTask(NamedTuple):
    """One task of this host, in its current state.

    `quiet_s`: seconds since its last log line (0: unknown). `written`: False until the supervisor
    of this attempt has written its status; until then, the status on disk belongs to the previous
    attempt. `waits`: the tasks that TensorFlow says it waits for, if it has logged nothing else
    since.
    """

    status: wire.TaskStatus
    supervised: bool  # True if its supervisor is alive
    quiet_s: float = 0.0
    written: bool = True
    waits: Tuple[str, ...] = ()


class View(NamedTuple):
    """Everything that a decision depends on.

    `now` and `marks` are monotonic seconds. The keys of `marks`: "prepared", "started", "decided"
    (when the run was); "again TASK" and "round N" (the earliest start of a task and of a round).
    `control_words`: the control files of the run that exist.
    """

    part: wire.HostPart
    phase: str
    known: Knowledge
    own: Dict[str, OwnTask]
    now: float
    marks: Dict[str, float]
    control_words: Dict[str, Word]  # start, commit, abort, stop
    silent_s: Dict[str, float] = {}  # host -> seconds since its last message
    counts: Dict[str, RestartCount] = {}  # task -> restart.count_failure of its last death
    supplied: int = 1  # the gang's round for which the chief's `keep` has been fetched
    boot_id: Optional[str] = None
    # True if all processes here had died (for example at a reboot), and no other host has answered
    # since then.
    rejoining: bool = False
    # host -> for how many seconds it has refused connections to the mesh's port
    refused_s: Dict[str, float] = {}

    def rebooted(self, status: wire.TaskStatus) -> bool:
        """True if the attempt belongs to an earlier boot of this host."""
        return None not in (self.boot_id, status.boot_id) and self.boot_id != status.boot_id


class Start(NamedTuple):
    """Start a supervisor for an attempt of the task."""

    task: str
    attempt: int = 1
    round: int = 1


class EndTask(NamedTuple):
    """Send SIGTERM to the task's processes, and SIGKILL after `grace_s`. The decision is repeated
    until the task has ended."""

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
    """Fetch the chief's `keep` in the background, once for each round. The decision is repeated
    until `keep` has arrived."""

    n: int


class ReportUnminded(NamedTuple):
    """Tell all hosts that `host` has no minder (odd `n`) or has one again (even `n`). `for_s`: the
    seconds since it lost its minder."""

    host: str
    n: int
    for_s: float = 0.0


class ReportLost(NamedTuple):
    """Tell all hosts that the tasks of `host` are lost, because it had no minder for too long."""

    host: str


class Phase(NamedTuple):
    """Enter a phase of the run on this host."""

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
