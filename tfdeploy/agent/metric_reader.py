"""Matches a job's patterns against the lines of its tasks, with a bound on the CPU time that this takes. On hosts, and on the
control machine.

A regular expression may need years for 40 characters. Python's `re` holds all threads up meanwhile and looks for signals only
in the main thread: there a timer interrupts it. In other threads only tfdeploy's own patterns are matched, which are linear.
"""

from __future__ import annotations

import signal
import threading
import time

from tfdeploy.agent.annotations import TYPE_CHECKING, Any, Callable, Dict, Iterable, List, Mapping, Optional
from tfdeploy.agent.metric_lines import find_one, find_printed, matched_texts, values_of

if TYPE_CHECKING:
    import re

    from tfdeploy.agent.metric_lines import Found

    _ByName = Dict[str, "re.Pattern[str]"]
else:
    _ByName = dict

SECOND_CPU_S = 0.02  # CPU time for the lines of one task in each second, and in one call
BURST_CPU_S = 1.0  # CPU time that is there at first: a log that is read from its beginning has many lines at once
CALL_CPU_S = 0.01  # a pattern that uses so much in one call is stopped
LINE_CPU_S = 0.0002  # if all CPU time is used up, a pattern that uses so much per line is stopped
_LEAST_CPU_S = 0.001  # with less no line is read: a timer of less than a microsecond never fires
TASKS_STOPPED = 3  # a pattern that was stopped for so many tasks is stopped for all
_set_timer, _VIRTUAL = signal.setitimer, signal.ITIMER_VIRTUAL
_KERAS = ""  # stands for what is read without patterns


class TooSlow(Exception):
    """The CPU time is used up."""


class MetricPatterns(_ByName):
    """The patterns of one run, by metric.

    `own`: the metrics whose patterns are tfdeploy's; they are never stopped.
    `stops`: metric -> for how many tasks its pattern was stopped.
    """

    def __init__(self, patterns: Mapping[str, re.Pattern[str]], own: Iterable[str] = ()) -> None:
        super().__init__(patterns)
        self.own = frozenset(own)
        self.stops: Dict[str, int] = {}


class MetricReader:
    """Reads one task's lines. A pattern that costs too much is stopped: it is not tried again for this task."""

    def __init__(self, patterns: Mapping[str, re.Pattern[str]]) -> None:
        self._patterns = patterns if isinstance(patterns, MetricPatterns) else MetricPatterns(patterns)
        self._stopped: Dict[str, None] = {}
        self._left_s = BURST_CPU_S  # of CPU, as of `_looked_at` (monotonic seconds)
        self._looked_at = time.monotonic()
        self._spent: Dict[str, float] = {}  # CPU seconds since there was CPU time to spare, by metric
        self._lines = 0  # read meanwhile
        self._reading, self._since = _KERAS, 0.0

    @property
    def stopped(self) -> List[str]:
        """The metrics whose patterns are not tried any more."""
        if not self._patterns.stops:
            return []
        return [name for name in self._patterns if self._is_stopped(name)]

    def find(self, lines: Iterable[str], possible: Callable[[str, float], bool]) -> Dict[str, float]:
        """As metric_lines.find, until the CPU time is used up."""
        self._refill()
        if self._left_s < _LEAST_CPU_S:
            return {}
        found: Found = {}
        texts = matched_texts(lines)
        self._lines += len(texts)
        self._reading, self._since = _KERAS, time.thread_time()
        if threading.current_thread() is not threading.main_thread():
            self._find(texts, self._patterns.own, possible, found)
        else:
            try:
                limit_s = min(self._left_s, SECOND_CPU_S)
                limited(limit_s, lambda: self._find(texts, self._patterns, possible, found))
            except TooSlow:
                self._next(_KERAS)
        if self._left_s < _LEAST_CPU_S:
            self._stop_the_costliest()
        return values_of(found)

    def _refill(self) -> None:
        now = time.monotonic()
        left_s = self._left_s + (now - self._looked_at) * SECOND_CPU_S
        self._left_s, self._looked_at = min(BURST_CPU_S, left_s), now
        if left_s >= BURST_CPU_S:
            self._spent, self._lines = {}, 0

    def _find(self, texts: List[str], names: Iterable[str], possible: Callable[[str, float], bool], found: Found) -> None:
        found.update(find_printed(texts))
        for name in names:
            if not self._is_stopped(name):
                self._next(name)
                find_one(texts, name, self._patterns[name], possible, found)
        self._next(_KERAS)

    def _next(self, name: str) -> None:
        """Counts what the last pattern has used, stops it if that is too much, and begins with `name`."""
        now = time.thread_time()
        used_s = now - self._since
        self._left_s -= used_s
        self._spent[self._reading] = self._spent.get(self._reading, 0.0) + used_s
        if used_s >= CALL_CPU_S:
            self._stop(self._reading)
        self._reading, self._since = name, now

    def _is_stopped(self, name: str) -> bool:
        stops = self._patterns.stops
        return bool(stops) and (name in self._stopped or stops.get(name, 0) >= TASKS_STOPPED)

    def _stop_the_costliest(self) -> None:
        name = max(self._spent, key=self._spent.__getitem__)
        if self._spent[name] >= LINE_CPU_S * self._lines:
            self._stop(name)
        self._spent, self._lines = {}, 0

    def _stop(self, name: str) -> None:
        if name != _KERAS and name not in self._patterns.own and name not in self._stopped:
            self._stopped[name] = None
            self._patterns.stops[name] = self._patterns.stops.get(name, 0) + 1


_end: Optional[float] = None  # thread_time() at which the work of now is interrupted
_installed = False  # whether _interrupt is the handler of the timer's signal


def limited(cpu_s: float, work: Callable[[], None]) -> None:
    """Calls `work`, in the main thread. Raises TooSlow out of it once it has used so much CPU time."""
    global _end, _installed
    if not _installed:
        signal.signal(signal.SIGVTALRM, _interrupt)
        _installed = True
    _end = time.thread_time() + cpu_s
    _set_timer(_VIRTUAL, cpu_s)
    try:
        work()
        _end = None
    finally:
        _end = None
        _set_timer(_VIRTUAL, 0)


def _interrupt(signum: int, frame: Any) -> None:
    """The timer counts the CPU time of all threads: it is set again until this one has used its own."""
    if _end is None:
        return
    left_s = _end - time.thread_time()
    if left_s > 0:
        signal.setitimer(signal.ITIMER_VIRTUAL, max(left_s, 0.001))
    else:
        raise TooSlow
