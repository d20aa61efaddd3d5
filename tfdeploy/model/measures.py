"""Step, loss, steps per second and all other metrics of one task, read from its own output.

Lines come at any rate, so only the newest few of each quarter of a second (by the lines' own time) are matched, the newest
first: the same lines give the same figures. What a line says: agent/metric_lines.py. Only what costs more CPU time than
agent/metric_reader.py allows is left out.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Mapping

from tfdeploy.agent import metric_patterns
from tfdeploy.agent.metric_lines import BATCH, BATCHES, EPOCH, EPOCHS, keras_step
from tfdeploy.agent.metric_lines import last_state as last_state
from tfdeploy.agent.metric_reader import MetricPatterns as MetricPatterns
from tfdeploy.agent.metric_reader import MetricReader
from tfdeploy.model.patterns import compiled

WINDOW_S = 30.0  # over which steps per second are averaged
MOST_STEPS = 10**13  # a million steps a second for four months
MOST_STEPS_PER_S = 10**9  # a resumed program may jump this far at once
_BUCKETS_PER_S = 4
LINES_PER_BUCKET = 16  # of which figures are read
KEPT_CHARS = 4096  # of a line that is kept to be shown

SHOWN_APART = ("step", "loss")  # metrics with a column of their own
# A worker's own step and the shared one, where a program prints both.
OTHER_STEPS = {"local_step": metric_patterns.LOCAL_STEP, "global_step": metric_patterns.GLOBAL_STEP}
PRINTED_RATE = "global_step/sec"  # of a program that prints no steps
_RATED = ("step", *OTHER_STEPS)
Patterns = Mapping[str, "re.Pattern[str]"]


def compile_patterns(metrics: Mapping[str, str]) -> MetricPatterns:
    """Those of `metrics` that compile and have a group; the others are left out."""
    found = {}
    for name, text in metrics.items():
        try:
            pattern = metric_patterns.compiled(text) if metric_patterns.is_own(text) else compiled(text)
        except ValueError:
            continue
        if pattern.groups:
            found[name] = pattern
    return MetricPatterns(found, own=[name for name in found if metric_patterns.is_own(metrics[name])])


NOT_OWN = frozenset((*SHOWN_APART, *OTHER_STEPS, EPOCH, EPOCHS, BATCH, BATCHES))


def own_metrics(metrics: Iterable[str]) -> list[str]:
    """Those that are shown as `name value`: without steps, and where Keras is in its epochs."""
    return [name for name in metrics if name not in NOT_OWN]


class Measures:
    """The fold over one task's lines."""

    __slots__ = ("_bucket", "_found", "_pending", "_reader", "_samples", "_settled", "_written")

    def __init__(self, patterns: Patterns) -> None:
        self._reader = MetricReader(patterns) if patterns else None
        self._pending: deque[str] = deque(maxlen=LINES_PER_BUCKET)
        self._bucket = -1
        self._settled: dict[str, float] = {}
        self._written: Mapping[str, float] = {}
        self._found: dict[str, float] | None = None  # in the lines of this bucket; None: to be looked for
        self._samples: dict[str, deque[tuple[float, float]]] = {
            name: deque(maxlen=int(WINDOW_S * _BUCKETS_PER_S) + 1) for name in _RATED if name in patterns
        }

    def line(self, time: float, line: str) -> None:
        """Called for every line, so it only appends: lines are matched once their quarter of a second is over.
        `time`: UTC seconds."""
        bucket = int(time * _BUCKETS_PER_S)
        if bucket != self._bucket:
            self._settle()
            self._bucket = bucket
        self._pending.append(line)
        self._found = None

    def take_written(self, metrics: Mapping[str, float], step_time: float | None = None) -> None:
        """Take the metrics that the task's host knows, also from event files. Those of its lines count before them.
        `step_time`: UTC seconds, when the step was written to an event file; None: it was printed."""
        self._written = {name: value for name, value in metrics.items() if name not in NOT_OWN or name in SHOWN_APART}
        samples = self._samples.get("step")
        if step_time is None or samples is None or "step" in self._settled or "step" not in metrics:
            return
        if not samples or step_time > samples[-1][0]:
            _sample(samples, step_time, metrics["step"])

    @property
    def stopped(self) -> list[str]:
        """The metrics that are not read any more: to match their patterns takes too long."""
        return [] if self._reader is None else self._reader.stopped

    def restart(self) -> None:
        """A new attempt: its steps are not compared with those of the one before."""
        self._settle()
        for samples in self._samples.values():
            samples.clear()

    def values(self) -> dict[str, float]:
        """The newest figure of each metric."""
        return {**self._written, **self._settled, **self._match()}

    def names(self) -> Iterable[str]:
        """The metrics that it has seen so far."""
        return {**self._settled, **self._written}.keys()

    @property
    def step(self) -> int | None:
        step = self.values().get("step")
        return None if step is None else int(step)

    @property
    def loss(self) -> float | None:
        return self.values().get("loss")

    def rate(self, until: float | None = None, name: str = "step") -> float | None:
        """Steps per second over the last 30 s of output; 0.0 when no step was printed for 30 s before `until`. None: not known,
        also where only event files have steps: programs write them late. `name`: "step", or one of OTHER_STEPS."""
        samples = self._samples.get(name)
        if samples is None or len(samples) < 2:
            return self._settled.get(PRINTED_RATE) if name == "step" else None
        (first, low), (last, high) = samples[0], samples[-1]
        if until is not None and until - last > WINDOW_S:
            return 0.0 if name in self._settled else None
        return (high - low) / (last - first) if last > first else None

    def _settle(self) -> None:
        found = self._match()
        self._pending.clear()
        self._found = {}
        self._settled.update(found)
        for name, samples in self._samples.items():
            if name in found:
                _sample(samples, self._bucket / _BUCKETS_PER_S, found[name])

    def _is_possible(self, name: str, step: float) -> bool:
        """Whether `step` is possible. A program may go back, begin at any step, and go on from a checkpoint far ahead."""
        if name not in _RATED:
            return True
        samples = self._samples[name]
        if abs(step) > MOST_STEPS or not samples:
            return abs(step) <= MOST_STEPS
        time, last = samples[-1]
        return step - last <= MOST_STEPS_PER_S * max(1.0, self._bucket / _BUCKETS_PER_S - time)

    def _match(self) -> dict[str, float]:
        if self._found is None:
            self._found = self._look()
        return self._found

    def _look(self) -> dict[str, float]:
        if self._reader is None or not self._pending:
            return {}
        found = self._reader.find(reversed(self._pending), self._is_possible)
        if "step" not in found and BATCH in found and "step" in self._samples:
            step = keras_step({**self._settled, **found})
            if step is not None:
                found["step"] = step
        return found


def _sample(samples: deque[tuple[float, float]], time: float, step: float) -> None:
    if samples and (step < samples[-1][1] or time < samples[-1][0]):
        samples.clear()
    samples.append((time, step))
    while time - samples[0][0] > WINDOW_S:
        samples.popleft()
