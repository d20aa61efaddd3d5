"""Hold step, loss, steps per second and all other metrics of one task, as its host's sampler reads
them (agent/sampling/printed.py).

If version 0.1.0 of tfdeploy launched a run, its hosts send metrics late, so this module searches
the lines of the run for metrics. Lines may come very fast. So, of all lines whose times are in the
same quarter of a second, only the newest few are searched, the newest first. A pattern that needs
more CPU time than agent/metric_reader.py allows is not used any more.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Mapping

from tfdeploy.agent.metric_lines import BATCH, BATCHES, EPOCH, EPOCHS, is_possible_step, keras_step
from tfdeploy.agent.metric_lines import last_progress_state as last_progress_state
from tfdeploy.agent.metric_patterns import OTHER_STEPS, STEP_COUNTERS
from tfdeploy.agent.metric_reader import MetricReader, compile_patterns
from tfdeploy.model.answers.samples import TaskSample
from tfdeploy.model.job import DEFAULT_METRICS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tfdeploy.model.plan import Plan

WINDOW_S = 30.0  # steps per second are averaged over this time
_BUCKETS_PER_S = 4
LINES_PER_BUCKET = 16  # at most this many lines in a quarter of a second are searched for metrics
KEPT_CHARS = 4096  # the most characters of a line that are kept for display

SHOWN_APART = ("step", "loss")  # metrics with a column of their own
PRINTED_RATE = "global_step/sec"  # the rate that is used if a program prints no steps
Patterns = Mapping[str, "re.Pattern[str]"]


def metric_patterns_of(plan: Plan) -> Patterns:
    """Return the patterns that find metrics in the lines of a run's tasks. If the run's hosts send
    the metrics, this machine does not search the lines, and {} is returned."""
    if plan.hosts_tell_metrics:
        return {}
    return compile_patterns({**OTHER_STEPS, **DEFAULT_METRICS, **plan.metrics})


STANDARD_METRICS = frozenset((*SHOWN_APART, *OTHER_STEPS, EPOCH, EPOCHS, BATCH, BATCHES))


def extra_metrics(metrics: Iterable[str]) -> list[str]:
    """Return the metrics that are shown as `name value`. Three kinds are left out: the steps, the
    metrics with a column of their own, and Keras's position in its epochs."""
    return [name for name in metrics if name not in STANDARD_METRICS]


class TaskMetrics:
    """The metrics of one task, computed from its samples, and also from its lines if `patterns` are
    given."""

    def __init__(self, patterns: Patterns) -> None:
        self._reader = MetricReader(patterns) if patterns else None
        self._pending: deque[str] = deque(maxlen=LINES_PER_BUCKET)
        self._bucket = -1
        self._settled: dict[str, float] = {}
        # step counter that the task prints -> when it was printed last
        self._counted: dict[str, float] = {}
        self._written: Mapping[str, float] = {}
        # metrics found in the lines of the current quarter of a second; None if these lines are not
        # searched yet
        self._matched: dict[str, float] | None = None
        self._samples: dict[str, deque[tuple[float, float]]] = {
            name: deque(maxlen=int(WINDOW_S * _BUCKETS_PER_S) + 1) for name in STEP_COUNTERS
        }

    def add_line(self, time: float, line: str) -> None:
        """Record a line. `time`: UTC seconds. This is called for every line, so the line is only
        appended here. All lines of one quarter of a second are searched together."""
        if self._reader is None:
            return
        bucket = int(time * _BUCKETS_PER_S)
        if bucket != self._bucket:
            self._finish_bucket()
            self._bucket = bucket
        self._pending.append(line)
        self._matched = None

    def take_sample(self, sample: TaskSample) -> None:
        """Record the metrics that the task's host found in the output and event files of the task.
        If this machine finds the same metric in lines, the value from the lines takes
        precedence."""
        not_finite = {name: float(text) for name, text in sample.not_finite.items()}
        metrics = {**sample.printed, **not_finite}
        if self._reader is None:
            for name in metrics.keys() & sample.step_times.keys() & self._samples.keys():
                if sample.step_times[name] > self._counted.get(name, 0.0):
                    self._record_step(name, sample.step_times[name], metrics[name])
        else:
            shown = (
                name for name in metrics if name not in STANDARD_METRICS or name in SHOWN_APART
            )
            metrics = {name: metrics[name] for name in shown}
        self._written = metrics
        written, samples = sample.step_time, self._samples["step"]
        if written is None or "step" in self._counted or "step" not in metrics:
            return
        if not samples or written > samples[-1][0]:
            _append_in_window(samples, written, metrics["step"])

    @property
    def stopped_metrics(self) -> list[str]:
        """Return the metrics that are no longer read, because matching their patterns takes too
        long."""
        return [] if self._reader is None else self._reader.stopped_metrics

    def start_attempt(self) -> None:
        """Start a new attempt: its steps are not compared with those of the previous attempt."""
        self._finish_bucket()
        for samples in self._samples.values():
            samples.clear()

    def newest_values(self) -> dict[str, float]:
        """Return the newest value of each metric."""
        return {**self._written, **self._settled, **self._match_pending()}

    def seen_names(self) -> Iterable[str]:
        """Return the names of the metrics seen so far."""
        return {**self._settled, **self._written}.keys()

    @property
    def step(self) -> int | None:
        step = self.newest_values().get("step")
        return None if step is None else int(step)

    @property
    def loss(self) -> float | None:
        return self.newest_values().get("loss")

    def steps_per_s(self, until: float | None = None, name: str = "step") -> float | None:
        """Return steps per second over the last 30 s of output; 0.0 if no step was printed for 30 s
        before `until`.

        Return None if the rate is not known. If only event files have steps, None is also returned
        instead of 0.0, because programs write these files late. `name`: "step", or one of
        OTHER_STEPS.
        """
        samples = self._samples[name]
        if len(samples) < 2:
            return {**self._written, **self._settled}.get(PRINTED_RATE) if name == "step" else None
        (first, low), (last, high) = samples[0], samples[-1]
        if until is not None and until - last > WINDOW_S:
            return 0.0 if name in self._counted else None
        return (high - low) / (last - first) if last > first else None

    def _finish_bucket(self) -> None:
        matched = self._match_pending()
        self._pending.clear()
        self._matched = {}
        self._settled.update(matched)
        for name in STEP_COUNTERS:
            if name in matched:
                self._record_step(name, self._bucket / _BUCKETS_PER_S, matched[name])

    def _record_step(self, name: str, time: float, step: float) -> None:
        self._counted[name] = time
        _append_in_window(self._samples[name], time, step)

    def _is_possible(self, name: str, step: float) -> bool:
        if name not in STEP_COUNTERS:
            return True
        time, last = self._samples[name][-1] if self._samples[name] else (0.0, None)
        return is_possible_step(step, last, self._bucket / _BUCKETS_PER_S - time)

    def _match_pending(self) -> dict[str, float]:
        if self._matched is None and self._reader is not None:
            metrics = self._reader.find_metrics(reversed(self._pending), self._is_possible)
            if "step" not in metrics and BATCH in metrics:
                step = keras_step({**self._settled, **metrics})
                if step is not None:
                    metrics["step"] = step
            self._matched = metrics
        return self._matched or {}


def _append_in_window(samples: deque[tuple[float, float]], time: float, step: float) -> None:
    if samples and (step < samples[-1][1] or time < samples[-1][0]):
        samples.clear()
    samples.append((time, step))
    while time - samples[0][0] > WINDOW_S:
        samples.popleft()
