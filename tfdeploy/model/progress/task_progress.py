"""Hold the progress of one task (what its host reports, and its last line) and of one host: its
connection, and the transfers to it with their bytes, rate and remaining time.

This module reads no clock, but takes the time from the events. Texts are not sanitised: they are as
the hosts sent them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from tfdeploy.agent.wire import DEATHS
from tfdeploy.model.answers.samples import TaskMetrics, TaskSample
from tfdeploy.model.events import TaskFields, TransferFields

_FIELDS = frozenset(TaskFields.__annotations__) - {"task", "host", "attempt", "state"}
_RANK = {"pending": 0, "starting": 1, "running": 2, "lost": 3, "ended": 4}


@dataclass(eq=False)
class TaskProgress:
    """One task. Times are UTC seconds by the host's clock."""

    task: str
    host: str
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
    last_line: str = ""  # for a progress bar, its last state
    last_time: float | None = None
    cpu: float | None = None  # cores in use; None: not measured
    memory: int | None = None  # bytes in use; None: not measured
    measures: TaskMetrics = field(default_factory=TaskMetrics)

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


WINDOW_S = 5.0  # the rate of a running transfer is averaged over this time


@dataclass(eq=False)
class Transfer:
    """One transfer to one host, computed from its events. `what`: "code", "data digits"."""

    what: str
    state: str = "begin"  # begin, moving, done, failed
    sent_bytes: int = 0
    total_bytes: int = 0
    began: float | None = None
    ended: float | None = None
    _samples: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=64))

    def apply_event(self, time: float, data: TransferFields) -> None:
        self.state = data.get("state", self.state)
        if self.state == "begin":
            self.began, self.ended, self.sent_bytes = time, None, 0
            self._samples.clear()
        self.sent_bytes = data.get("sent_bytes", self.sent_bytes) or 0
        self.total_bytes = max(data.get("total_bytes", self.total_bytes) or 0, self.sent_bytes)
        self._samples.append((time, self.sent_bytes))
        while time - self._samples[0][0] > WINDOW_S and len(self._samples) > 2:
            self._samples.popleft()
        if self.state in ("done", "failed"):
            self.ended = time

    @property
    def is_active(self) -> bool:
        return self.state in ("begin", "moving")

    @property
    def bytes_per_s(self) -> float | None:
        """Return bytes per second, or None if this is not known yet. While the transfer runs, the
        rate is that of the last 5 s. Afterwards it is that of the whole transfer."""
        first, sent = self._samples[0] if self._samples else (0.0, 0)
        if not self.is_active and self.began is not None:
            first, sent = self.began, 0
        last = self._samples[-1][0] if self._samples else 0.0
        return (self.sent_bytes - sent) / (last - first) if last > first else None

    @property
    def remaining_s(self) -> float | None:
        """Return the remaining seconds at the present rate, or None if the transfer does not run or
        has no rate yet."""
        rate = self.bytes_per_s
        if not self.is_active or not rate:
            return None
        return (self.total_bytes - self.sent_bytes) / rate


class CombinedTransfers(NamedTuple):
    """The totals of several transfers. `remaining_s`: seconds until the last of them ends."""

    sent_bytes: int
    total_bytes: int
    bytes_per_s: float | None
    remaining_s: float | None


def sum_transfers(transfers: Iterable[Transfer]) -> CombinedTransfers:
    """Return the totals of transfers that run in parallel. The remaining time is not less than that
    of the slowest transfer."""
    every = list(transfers)
    sent, total = sum(t.sent_bytes for t in every), sum(t.total_bytes for t in every)
    rates = [t.bytes_per_s for t in every if t.is_active and t.bytes_per_s]
    rate = sum(rates) if rates else None
    left_s = [t.remaining_s for t in every if t.remaining_s is not None]
    return CombinedTransfers(
        sent, total, rate, max([(total - sent) / rate, *left_s]) if rate else None
    )


class HostProgress:
    """One host: the last state of its connection, and the transfers to it."""

    def __init__(self, host: str) -> None:
        self.host = host
        # The state of the connection: "" before the first event of the host; then "connected",
        # "unreachable", "failed", "prepared", "started" or "committed"; during a setup also
        # "ready".
        self.state = ""
        self.text: str | None = None
        self.transfers: dict[str, Transfer] = {}
        self.synced = False  # True if code and data are complete on the host
        # {number of a GPU: (percent busy, bytes in use)}
        self.gpus: dict[int, tuple[float | None, int | None]] = {}
        self.traffic: int | None = None  # bytes received and sent per second

    @property
    def active_transfers_to_host(self) -> list[Transfer]:
        return [transfer for transfer in self.transfers.values() if transfer.is_active]
