"""Match a job's patterns against the lines that its tasks print, within a limit of CPU time. Only
hosts do this.

A regular expression may need years for 40 characters. While Python's `re` matches, no other thread
runs, and only the main thread handles signals. So the patterns are matched in the main thread,
which a timer interrupts.
"""

from __future__ import annotations

import gc
import signal
import time

from tfdeploy.agent.annotations import (
    TYPE_CHECKING,
    Any,
    Callable,
    Dict,
    Iterable,
    List,
    Mapping,
    Optional,
    Set,
)
from tfdeploy.agent.metric_lines import (
    find_metric,
    find_standard_metrics,
    metric_values,
    texts_to_match,
)
from tfdeploy.agent.metric_patterns import compile_metrics, is_builtin_pattern

if TYPE_CHECKING:
    import re

    from tfdeploy.agent.metric_lines import Found

    _ByName = Dict[str, "re.Pattern[str]"]
else:
    _ByName = dict

# All limits are seconds of CPU time. Each task has a budget for matching its lines. The budget is
# BURST_CPU_S at first, because a log that is read from its beginning has many lines at once. Every
# second the budget grows by SECOND_CPU_S, but never beyond BURST_CPU_S. One call may use
# SECOND_CPU_S, or LINE_CPU_S for each of its lines if that is more.
SECOND_CPU_S = 0.02
BURST_CPU_S = 1.0
# A pattern is stopped as too slow if in one call it takes both at least CALL_CPU_S and at least
# half of LINE_CPU_S for each line. When the budget is used up, the pattern that has taken the most
# time since the budget was last full is stopped too, if it has taken at least LINE_CPU_S for each
# line.
CALL_CPU_S = 0.01
LINE_CPU_S = 0.0002
# If less than this is left of the budget, no line is read: a timer of less than a microsecond would
# never fire.
_LEAST_CPU_S = 0.001
# A pattern that was stopped for this many tasks is stopped for all tasks.
TASKS_STOPPED = 3
# CPU time that belongs to no pattern, such as the time to find Keras's metrics, is counted under
# this name.
_KERAS = ""


class CpuLimitReached(Exception):
    """Raised when a call has used up the CPU time that it was allowed."""


class MetricPatterns(_ByName):
    """The patterns of one run: metric -> pattern.

    `stops`: metric -> the number of tasks for which its pattern is no longer used, because it took
    too much CPU time. Patterns that tfdeploy itself has defined are always used.
    """

    def __init__(self, patterns: Mapping[str, re.Pattern[str]]) -> None:
        super().__init__(patterns)
        self.stops: Dict[str, int] = {}


def compile_patterns(regex_by_metric: Mapping[str, str]) -> MetricPatterns:
    """Compile the expressions of a plan. Unusable expressions are left out, see compile_metrics."""
    return MetricPatterns(compile_metrics(regex_by_metric))


class MetricReader:
    """Reads metrics from the lines of one task. A pattern that uses too much CPU time is stopped,
    which means that it is not matched with later lines of this task."""

    def __init__(self, patterns: MetricPatterns) -> None:
        self._patterns = patterns
        self._stopped: Set[str] = set()
        # at most this many CPU seconds for one pattern in the current call
        self._most_s = CALL_CPU_S
        # The CPU seconds that were left when `_refilled_at` (monotonic seconds) was set.
        self._budget_s = BURST_CPU_S
        self._refilled_at = time.monotonic()
        # How many CPU seconds each metric has used, and how many lines were read, since the budget
        # was last full.
        self._spent: Dict[str, float] = {}
        self._lines = 0
        # The metric whose pattern is being matched, and the value of time.thread_time() when this
        # began.
        self._current, self._since = _KERAS, 0.0

    @property
    def stopped_metrics(self) -> List[str]:
        """Return the metrics whose patterns were stopped for this task as too slow."""
        return [name for name in self._patterns if self._is_pattern_stopped(name)]

    def find_metrics(
        self, lines: Iterable[str], is_possible: Callable[[str, float], bool]
    ) -> Dict[str, float]:
        """Return metric -> newest number. If the CPU budget is used up, some metrics are left out.
        Must be called in the main thread.

        `lines`: the lines to search; the newest comes first. `is_possible`: as in
        metric_lines.find_metric.
        """
        self._refill_budget()
        if self._budget_s < _LEAST_CPU_S:
            return {}
        metrics: Found = {}
        texts = texts_to_match(lines)
        self._lines += len(texts)
        self._most_s = max(CALL_CPU_S, LINE_CPU_S / 2 * len(texts))
        self._current, self._since = _KERAS, time.thread_time()
        try:
            limit_s = min(self._budget_s, max(SECOND_CPU_S, LINE_CPU_S * len(texts)))
            call_with_cpu_limit(limit_s, lambda: self._match_patterns(texts, is_possible, metrics))
        except CpuLimitReached:
            self._switch_pattern(_KERAS)
        if self._budget_s < _LEAST_CPU_S:
            self._stop_costliest_pattern()
        return metric_values(metrics)

    def _refill_budget(self) -> None:
        now = time.monotonic()
        budget_s = self._budget_s + (now - self._refilled_at) * SECOND_CPU_S
        self._budget_s, self._refilled_at = min(BURST_CPU_S, budget_s), now
        if budget_s >= BURST_CPU_S:
            self._spent, self._lines = {}, 0

    def _match_patterns(
        self,
        texts: List[str],
        is_possible: Callable[[str, float], bool],
        metrics: Found,
    ) -> None:
        metrics.update(find_standard_metrics(texts))
        for name, pattern in self._patterns.items():
            if not self._is_pattern_stopped(name):
                self._switch_pattern(name)
                find_metric(texts, name, pattern, is_possible, metrics)
        self._switch_pattern(_KERAS)

    def _switch_pattern(self, name: str) -> None:
        """Subtract the CPU time of the current pattern from the budget, and stop this pattern if it
        was too slow. `name`: the metric whose pattern comes next."""
        now = time.thread_time()
        used_s = now - self._since
        self._budget_s -= used_s
        self._spent[self._current] = self._spent.get(self._current, 0.0) + used_s
        if used_s >= self._most_s:
            self._stop_pattern(self._current)
        self._current, self._since = name, now

    def _is_pattern_stopped(self, name: str) -> bool:
        return name in self._stopped or self._patterns.stops.get(name, 0) >= TASKS_STOPPED

    def _stop_costliest_pattern(self) -> None:
        name = max(self._spent, key=self._spent.__getitem__)
        if self._spent[name] >= LINE_CPU_S * self._lines:
            self._stop_pattern(name)
        self._spent, self._lines = {}, 0

    def _stop_pattern(self, name: str) -> None:
        if name == _KERAS or name in self._stopped:
            return
        if not is_builtin_pattern(self._patterns[name]):
            self._stopped.add(name)
            self._patterns.stops[name] = self._patterns.stops.get(name, 0) + 1


# The value of time.thread_time() at which the current call of `call_with_cpu_limit` is interrupted.
# The value is None if there is no current call.
_deadline: Optional[float] = None


def call_with_cpu_limit(cpu_s: float, work: Callable[[], None]) -> None:
    """Call `work`, and raise CpuLimitReached in it when it has used `cpu_s` seconds of CPU time.
    Must be called in the main thread. During the call, Python's garbage collection is off, because
    a CpuLimitReached that is raised in a finalizer would be lost."""
    global _deadline
    signal.signal(signal.SIGVTALRM, _raise_if_too_slow)
    collects = gc.isenabled()
    gc.disable()
    _deadline = time.thread_time() + cpu_s
    signal.setitimer(signal.ITIMER_VIRTUAL, cpu_s)
    try:
        work()
        # The limit ends before the `finally` block, so that CpuLimitReached cannot interrupt the
        # cleanup there.
        _deadline = None
    finally:
        _deadline = None
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        if collects:
            gc.enable()


def _raise_if_too_slow(signum: int, frame: Any) -> None:
    """Raise CpuLimitReached if the main thread has used its CPU time. The timer counts the time of
    all threads, so the signal may come too early; in this case the timer is set again."""
    if _deadline is None:
        return
    left_s = _deadline - time.thread_time()
    if left_s <= 0:
        raise CpuLimitReached
    signal.setitimer(signal.ITIMER_VIRTUAL, max(left_s, 0.001))
