"""What is decided upon, and what may come of it: values that decide.py and restart.py share with the minder."""

from __future__ import annotations

from tfdeploy.agent import wire
from tfdeploy.agent.annotations import TYPE_CHECKING, Dict, Optional, Tuple, Union
from tfdeploy.agent.mesh.shared_state import Knowledge
from tfdeploy.agent.record import NamedTuple

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import RestartCount, Word


class OwnTask(NamedTuple):
    """One task of this host, as it is now. `quiet_s`: since it last wrote anything of its own (0 where that is unknown).
    `written`: False while the supervisor of this attempt has not written its status yet: on disk lies that of the attempt
    before. `waits`: the tasks that TensorFlow says it waits for, where it has said nothing else since."""

    status: wire.TaskStatus
    supervised: bool  # its supervisor is alive
    quiet_s: float = 0.0
    written: bool = True
    waits: Tuple[str, ...] = ()


class View(NamedTuple):
    """All that is decided upon. `now` and `marks` are monotonic seconds; marks: prepared, started, decided,
    "again TASK" and "round N": not before."""

    part: wire.HostPart
    phase: str
    known: Knowledge
    own: Dict[str, OwnTask]
    now: float
    marks: Dict[str, float]
    words: Dict[str, Word]  # start, commit, abort, stop
    silent_s: Dict[str, float] = {}  # host -> since it was last heard of, where that is known
    counts: Dict[str, RestartCount] = {}  # task -> restart.count_failure of its last death
    supplied: int = 1  # the gang's round for which the chief's keep lies here
    boot_id: Optional[str] = None
    rejoining: bool = False  # all of it was gone here, by a reboot say, and no other host has been heard of since
    refused_s: Dict[
        str, float
    ] = {}  # host -> for how long it has answered that nobody listens at the mesh's port, and said no word

    def rebooted(self, status: wire.TaskStatus) -> bool:
        """Whether that attempt belongs to an earlier life of this host."""
        return None not in (self.boot_id, status.boot_id) and self.boot_id != status.boot_id


class Start(NamedTuple):
    task: str
    attempt: int = 1
    round: int = 1


class End(NamedTuple):
    """TERM to the task's tree, `grace_s`, KILL. Repeated until it has ended."""

    task: str
    reason: str
    grace_s: float


class Reap(NamedTuple):
    """Its supervisor is dead: kill what is left, write the status."""

    task: str
    outcome: str
    reason: str
    attempt: int = 1
    round: int = 1


class GiveUp(NamedTuple):
    """It died once too often."""

    task: str
    reason: str


class NewRound(NamedTuple):
    """Tell all hosts that the gang starts again: the `task` died."""

    n: int
    task: str


class ReportStage(NamedTuple):
    """Tell all hosts how far this one is with the gang's new start."""

    n: int
    stage: int


class Supply(NamedTuple):
    """Fetch the chief's keep, once for each round. Goes on in the background; repeated until it has come."""

    n: int


class ReportUnminded(NamedTuple):
    """Tell all hosts that nobody minds the run on that one (n is odd), or that somebody does again. `for_s`: since when."""

    host: str
    n: int
    for_s: float = 0.0


class ReportLost(NamedTuple):
    """Tell all hosts that what ran on that one is lost for good: nobody has minded it for too long."""

    host: str


class Phase(NamedTuple):
    phase: str


class Commit(NamedTuple):
    """Tell all hosts."""


class AbortRun(NamedTuple):
    """Tell all hosts that the run ends: kind as in knowledge.ABORT_KINDS."""

    kind: str
    reason: str
    grace_s: Optional[float] = None


Action = Union[Start, End, Reap, Phase, Commit, AbortRun, GiveUp, NewRound, ReportStage, Supply, ReportUnminded, ReportLost]
