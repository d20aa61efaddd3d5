"""Hold the progress of one task: what its host reports, and what its lines contain. Texts are not
sanitised: they are as the hosts sent them."""

from __future__ import annotations

from dataclasses import InitVar, dataclass

from tfdeploy.agent.metric_lines import last_progress_state
from tfdeploy.model.answers.samples import Patterns, TaskMetrics, TaskSample
from tfdeploy.model.events import TaskFields
from tfdeploy.model.status.task_status import DEATHS

_FIELDS = frozenset(TaskFields.__annotations__) - {"task", "host", "attempt", "state"}
_RANK = {"pending": 0, "starting": 1, "running": 2, "lost": 3, "ended": 4}


@dataclass(eq=False)
class TaskProgress:
    """One task. Times are UTC seconds by the host's clock."""

    task: str
    host: str
    patterns: InitVar[Patterns]
    gpus: tuple[int, ...] = ()
    deciding: bool = False
    address: str = ""  # the endpoint to which other tasks connect
    state: str = "pending"
    up: bool = False
    outcome: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    reason: str | None = None
    health: str | None = None
    health_reason: str | None = None
    health_since: float | None = None
    pid: int | None = None
    attempt: int = 0
    started: float | None = None
    ended: float | None = None
    lines: int = 0
    written_steps: int = 0  # number of samples with a new step that came from an event file
    last_raw: str = ""
    last_time: float | None = None
    cpu: float | None = None  # cores in use; None: not measured
    memory: int | None = None  # bytes in use; None: not measured

    def __post_init__(self, patterns: Patterns) -> None:
        self.measures = TaskMetrics(patterns)

    @property
    def restarts(self) -> int:
        return max(0, self.attempt - 1)

    @property
    def step(self) -> int | None:
        return self.measures.step

    @property
    def loss(self) -> float | None:
        return self.measures.loss

    @property
    def steps_per_s(self) -> float | None:
        """Return steps per second. Return None if the task has ended or is lost, or if no rate is
        known."""
        return self.steps_per_s_of("step")

    def steps_per_s_of(self, name: str) -> float | None:
        """Return the steps per second of a metric that counts steps; None if not known."""
        return (
            None
            if self.state in ("ended", "lost")
            else self.measures.steps_per_s(self.last_time, name)
        )

    @property
    def last_line(self) -> str:
        """Return the task's last line; for a progress bar, its last state."""
        return last_progress_state(self.last_raw)

    @property
    def is_dead(self) -> bool:
        return self.outcome in DEATHS

    def take_sample(self, sample: TaskSample) -> None:
        """Record the metrics that the task's host has read (see TaskMetrics). A new step in an
        event file shows that the task is alive, just as a new line of its log does."""
        before = self.step
        self.measures.take_sample(sample)
        if sample.step_time is not None and self.step != before:
            self.written_steps += 1
            self.last_time = max(sample.step_time, self.last_time or 0.0)

    def apply_status(self, fields: TaskFields) -> None:
        """Record the fields of a TaskStatus, unless they are older than the known ones."""
        attempt, state = fields.get("attempt", self.attempt), fields.get("state", self.state)
        if _status_order(attempt, state) < _status_order(self.attempt, self.state):
            return
        if attempt > self.attempt:
            self.measures.start_attempt()
        self.attempt, self.state = attempt, state
        for name, value in fields.items():
            if name in _FIELDS:
                setattr(self, name, value)


def _status_order(attempt: int, state: str) -> tuple[int, int]:
    """Return a sort key that grows over time. A task that waits to restart is `pending`, and still
    has the number of the attempt that has ended. So `pending` comes after all other states of that
    attempt."""
    return attempt, len(_RANK) if state == "pending" and attempt else _RANK.get(state, 0)
