"""Step, loss and steps per second of one task, read from its own output by the job's regular expressions. Pure.

Lines come at any rate, so only the newest few of each quarter of a second (by the lines' own time) are matched, the newest
first: the same lines always give the same figures. What TensorFlow's C++ code logs is left out.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Iterable, Mapping

from tfdeploy.model.patterns import compiled
from tfdeploy.model.tensorflow_log import program_text

MATCHED_CHARS = 4096  # of one line, at most, are given to the job's regular expressions
WINDOW_S = 30.0  # over which steps per second are averaged
MOST_STEPS = 10**13  # a million steps a second for four months
MOST_STEPS_PER_S = 10**9  # a resumed program may jump this far at once
_BUCKETS_PER_S = 4
_LINES_PER_BUCKET = 16
_NUMBER = re.compile(r"[-+]?(?:\d[\d,_]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")

SHOWN_APART = ("step", "loss")  # metrics with a column of their own
OTHER_STEPS = {  # a worker's own step and the shared one, where a program prints both
    "local_step": r"(?i)(?:\blocal[ _]?step|(?<!global)(?<!global_)(?<!global )\bstep(?=.*\bglobal[ _]?step\b))\b[\s=:]+(\d+)",
    "global_step": r"(?i)\bglobal[ _]?step\b[\s=:]+(\d+)",
}
_RATED = ("step", *OTHER_STEPS)
Patterns = Mapping[str, "re.Pattern[str]"]


def compile_patterns(metrics: Mapping[str, str]) -> dict[str, re.Pattern[str]]:
    """Those of `metrics` that compile and have a group; the others are left out."""
    found = {}
    for name, text in metrics.items():
        try:
            pattern = compiled(text)
        except ValueError:
            continue
        if pattern.groups:
            found[name] = pattern
    return found


def own_metrics(metrics: Iterable[str]) -> list[str]:
    """The job's own metrics, which are shown as `name value`."""
    return [name for name in metrics if name not in SHOWN_APART]


def last_state(line: str) -> str:
    """The last state of a progress bar that is drawn with carriage returns."""
    if "\r" not in line:
        return line
    line = line.rstrip("\r\x08")
    return line[line.rfind("\r") + 1 :]


class Measures:
    """The fold over one task's lines."""

    __slots__ = ("_bucket", "_patterns", "_pending", "_samples", "_settled")

    def __init__(self, patterns: Patterns) -> None:
        self._patterns = patterns
        self._pending: deque[str] = deque(maxlen=_LINES_PER_BUCKET)
        self._bucket = -1
        self._settled: dict[str, float] = {}
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

    def restart(self) -> None:
        """A new attempt: its steps are not compared with those of the one before."""
        self._settle()
        for samples in self._samples.values():
            samples.clear()

    def values(self) -> dict[str, float]:
        """The newest figure of each metric."""
        return {**self._settled, **self._match()}

    @property
    def step(self) -> int | None:
        step = self.values().get("step")
        return None if step is None else int(step)

    @property
    def loss(self) -> float | None:
        return self.values().get("loss")

    def rate(self, until: float | None = None, name: str = "step") -> float | None:
        """Steps per second over the last 30 s of output; 0.0 when no step came for 30 s before `until`. None: not known.
        `name`: "step", or one of OTHER_STEPS."""
        samples = self._samples.get(name)
        if samples is None or len(samples) < 2:
            return None
        (first, low), (last, high) = samples[0], samples[-1]
        if until is not None and until - last > WINDOW_S:
            return 0.0
        return (high - low) / (last - first) if last > first else None

    def _settle(self) -> None:
        found = self._match()
        self._pending.clear()
        self._settled.update(found)
        for name, samples in self._samples.items():
            if name in found:
                _sample(samples, self._bucket / _BUCKETS_PER_S, found[name])

    def _possible(self, name: str, step: float) -> bool:
        """Whether `step` is possible. A program may go back, begin at any step, and go on from a checkpoint far ahead."""
        samples = self._samples[name]
        if abs(step) > MOST_STEPS or not samples:
            return abs(step) <= MOST_STEPS
        time, last = samples[-1]
        return step - last <= MOST_STEPS_PER_S * max(1.0, self._bucket / _BUCKETS_PER_S - time)

    def _match(self) -> dict[str, float]:
        found: dict[str, float] = {}
        if not self._patterns:
            return found
        for line in reversed(self._pending):
            text = program_text(last_state(line)[:MATCHED_CHARS])
            for name, pattern in self._patterns.items():
                if name not in found and (match := pattern.search(text)):
                    number = _number(match[1])
                    if number is not None and (name not in _RATED or self._possible(name, number)):
                        found[name] = number
            if len(found) == len(self._patterns):
                break
        return found


def _sample(samples: deque[tuple[float, float]], time: float, step: float) -> None:
    if samples and (step < samples[-1][1] or time < samples[-1][0]):
        samples.clear()
    samples.append((time, step))
    while time - samples[0][0] > WINDOW_S:
        samples.popleft()


def _number(text: str | None) -> float | None:
    if not text or not _NUMBER.fullmatch(text.strip()):
        return None
    number = float(text.replace(",", "").replace("_", ""))
    return number if math.isfinite(number) else None
