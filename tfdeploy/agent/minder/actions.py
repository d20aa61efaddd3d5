"""Define the input and the output of decide.py, restart.py and unminded.py. The input is what the
minder (the agent's daemon for one run on one host) has observed. The output are the actions that
the minder then carries out.

The gang consists of the tasks that restart together. A round is one start of the gang.
"""

from __future__ import annotations

from tfdeploy.agent import wire
from tfdeploy.agent.annotations import TYPE_CHECKING, Dict, Optional, Tuple, Union
from tfdeploy.agent.mesh.shared_state import KnownRunState
from tfdeploy.agent.record import NamedTuple

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import MinderOrder, RestartCount


class LocalTask(NamedTuple):
    """One task of this host, in its current state.

    `is_status_written`: False if the supervisor of the current attempt has not written a status
    yet. The status on disk then belongs to the previous attempt.
    `quiet_s`: seconds since the task last logged a line of its own, or 0 if that is unknown.
    `awaited_tasks`: the tasks for which this task waits, according to messages of TensorFlow in its
    log. Empty if the task has logged any other line since.
    """

    status: wire.TaskStatus
    is_supervised: bool  # True if the supervisor of the task is alive
    quiet_s: float = 0.0
    is_status_written: bool = True
    awaited_tasks: Tuple[str, ...] = ()

    @property
    def has_ended(self) -> bool:
        return self.status.state in wire.OVER and not self.is_supervised


class HostRunView(NamedTuple):
    """Everything on which a decision depends.

    `now` and the values of `time_by_event` are monotonic seconds.
    `time_by_event` has these keys: "prepared" and "started" (when the run reached this state on
    this host, or when the launcher last gave a sign of life in this state), "decided" (when this
    host learned that the run has succeeded), "back" (when this minder began, if `rejoining`),
    "unminded HOST" (when this host learned that HOST has no minder), "again TASK" (the task must
    not restart earlier), "round N" (round N of the gang must not start earlier).
    `orders`: {name: content} of the orders for the minder that exist as files.
    """

    part: wire.HostPart
    phase: str
    known: KnownRunState
    local_tasks: Dict[str, LocalTask]
    now: float
    time_by_event: Dict[str, float]
    orders: Dict[str, MinderOrder]
    silence_s_by_host: Dict[str, float] = {}  # host -> seconds since its last message
    # Task -> how many of its starts have failed, up to its last death (see restart.count_failure).
    restart_counts: Dict[str, RestartCount] = {}
    # The last round for which this host has fetched the chief's `keep` folders. A round is one
    # start of all tasks that restart together. Nothing is fetched for round 1.
    fetched_keep_round: int = 1
    boot_id: Optional[str] = None
    # True if this minder has replaced a dead one, has found no live supervisor of the run (for
    # example after a reboot), and has not heard from another host since.
    rejoining: bool = False
    # host -> for how many seconds the host has refused all connections to its mesh port
    refusal_s_by_host: Dict[str, float] = {}

    def seconds_since(self, event: str) -> float:
        """Return the seconds since the event, or 0 if it has not happened."""
        return self.now - self.time_by_event.get(event, self.now)

    def was_started_before_boot(self, status: wire.TaskStatus) -> bool:
        """Return True if the attempt was started before the last boot of this host."""
        return None not in (self.boot_id, status.boot_id) and self.boot_id != status.boot_id


class StartTask(NamedTuple):
    """Start a supervisor for an attempt of the task."""

    task: str
    attempt: int = 1
    round: int = 1


class EndTask(NamedTuple):
    """Send SIGTERM to the processes of the task, and SIGKILL after `grace_s` seconds. decide.py
    returns this action again in each step until the task has ended."""

    task: str
    reason: str
    grace_s: float


class ReapTask(NamedTuple):
    """Kill the remaining processes of a task whose supervisor is dead, and write the task's
    status."""

    task: str
    outcome: str
    reason: str
    attempt: int = 1
    round: int = 1


class GiveUpTask(NamedTuple):
    """Record that the task is not restarted again. `reason` says why."""

    task: str
    reason: str


class AnnounceRound(NamedTuple):
    """Tell all hosts that the tasks that restart together (the gang) start again as round
    `round_number`, because `task` died."""

    round_number: int
    task: str


class ReportStage(NamedTuple):
    """Tell all hosts that this host has reached the stage `stage` of round `round_number`. A round
    is one start of all tasks that restart together. restart.py defines the stages."""

    round_number: int
    stage: int


class FetchKeepFolders(NamedTuple):
    """Fetch the `keep` folders of the chief's host in the background, for round `round_number` of
    the gang. decide.py returns this action in each step until the folders have arrived. Only the
    first of these actions starts the transfer."""

    round_number: int


class ReportMinderChange(NamedTuple):
    """Tell all hosts that `host` has lost its minder (the agent's daemon for the run), or that it
    has a minder again.

    `change_count`: how often `host` has lost or regained its minder. After an odd number of
    changes, `host` has no minder.
    `without_minder_s`: for how many seconds `host` has had no minder.
    """

    host: str
    change_count: int
    without_minder_s: float = 0.0


class ReportTasksLost(NamedTuple):
    """Tell all hosts that the tasks of `host` are lost, because `host` has had no minder for too
    long."""

    host: str


class EnterPhase(NamedTuple):
    """Record that the run has reached the phase `phase` on this host."""

    phase: str


class AnnounceCommit(NamedTuple):
    """Tell all hosts that the run is committed: from now on, it continues even if the control
    machine cannot be reached."""


class AbortRun(NamedTuple):
    """Tell all hosts to end the run. `kind` is one of shared_state.ABORT_KINDS, such as "stop"."""

    kind: str
    reason: str
    grace_s: Optional[float] = None


Action = Union[
    StartTask,
    EndTask,
    ReapTask,
    EnterPhase,
    AnnounceCommit,
    AbortRun,
    GiveUpTask,
    AnnounceRound,
    ReportStage,
    FetchKeepFolders,
    ReportMinderChange,
    ReportTasksLost,
]
