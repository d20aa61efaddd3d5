"""The input and the output of decisions: values that decide.py, restart.py and unminded.py share
with the minder."""

from __future__ import annotations

from tfdeploy.agent import wire
from tfdeploy.agent.annotations import TYPE_CHECKING, Dict, Optional, Tuple, Union
from tfdeploy.agent.mesh.shared_state import Knowledge
from tfdeploy.agent.record import NamedTuple

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import RestartCount, Word


class OwnTask(NamedTuple):
    """One task of this host, as it is now. `quiet_s`: seconds since it last logged anything of its
    own (0 where unknown). `written`: False while the supervisor of this attempt has not written its
    status: the one on disk is of the attempt before. `waits`: the tasks that TensorFlow says it
    waits for, if it has logged nothing else since."""

    status: wire.TaskStatus
    supervised: bool  # its supervisor is alive
    quiet_s: float = 0.0
    written: bool = True
    waits: Tuple[str, ...] = ()


class View(NamedTuple):
    """All that a decision depends on. `now` and `marks` are monotonic seconds. Marks: when the run
    was prepared, started and decided; the earliest start of a task ("again TASK") and of a round
    ("round N")."""

    part: wire.HostPart
    phase: str
    known: Knowledge
    own: Dict[str, OwnTask]
    now: float
    marks: Dict[str, float]
    words: Dict[str, Word]  # start, commit, abort, stop
    silent_s: Dict[str, float] = {}  # host -> seconds since its last message, where known
    counts: Dict[str, RestartCount] = {}  # task -> restart.count_failure of its last death
    supplied: int = 1  # the gang's round for which the chief's keep has been fetched
    boot_id: Optional[str] = None
    # the processes here were gone (a reboot, say), and no other host has answered since
    rejoining: bool = False
    # host -> for how long it has refused connections to the mesh's port
    refused_s: Dict[str, float] = {}

    def rebooted(self, status: wire.TaskStatus) -> bool:
        """Whether that attempt belongs to an earlier boot of this host."""
        return None not in (self.boot_id, status.boot_id) and self.boot_id != status.boot_id


class Start(NamedTuple):
    task: str
    attempt: int = 1
    round: int = 1


class EndTask(NamedTuple):
    """TERM to the task's processes, KILL after `grace_s`. Repeated until it has ended."""

    task: str
    reason: str
    grace_s: float


class Reap(NamedTuple):
    """Its supervisor is dead: kill its processes that are left, write its status."""

    task: str
    outcome: str
    reason: str
    attempt: int = 1
    round: int = 1


class GiveUp(NamedTuple):
    """It has used up its restarts."""

    task: str
    reason: str


class NewRound(NamedTuple):
    """Tell all hosts that the gang starts again, because `task` died."""

    n: int
    task: str


class ReportStage(NamedTuple):
    """Tell all hosts how far this one is with round `n` of the gang: a stage of restart.py."""

    n: int
    stage: int


class Supply(NamedTuple):
    """Fetch the chief's keep, once for each round, in the background. Repeated until it has
    arrived."""

    n: int


class ReportUnminded(NamedTuple):
    """Tell all hosts that `host` has no minder (n is odd) or has one again (n is even). `for_s`:
    for how long."""

    host: str
    n: int
    for_s: float = 0.0


class ReportLost(NamedTuple):
    """Tell all hosts that the tasks of `host` are lost for good: it has had no minder for too
    long."""

    host: str


class Phase(NamedTuple):
    phase: str


class Commit(NamedTuple):
    """Tell all hosts."""


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
