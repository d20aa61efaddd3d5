"""Matches a job's patterns against the lines of its tasks, with a bound on the CPU time that this takes. On hosts, and on the
control machine.

A regular expression may need years for 40 characters. Python's `re` holds all threads up meanwhile and looks for signals only
in the main thread: there a timer interrupts it. In other threads no line is matched.
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

SECOND_CPU_S = 0.02  # of CPU, that reading the lines of one task may take in each second
STOPPED_FROM = 0.5  # of that: what a pattern has used at least, where it is stopped because all is used up
TASKS_STOPPED = 3  # a pattern that was stopped for so many tasks is stopped for all
_set_timer, _VIRTUAL = signal.setitimer, signal.ITIMER_VIRTUAL
_KERAS = ""  # stands for what is read without patterns


class TooSlow(Exception):
    """The CPU time is used up."""


class MetricPatterns(_ByName):
    """The patterns of one run, by metric. `stops`: metric -> for how many tasks its pattern was stopped."""

    def __init__(self, patterns: Mapping[str, re.Pattern[str]]) -> None:
        super().__init__(patterns)
        self.stops: Dict[str, int] = {}


class MetricReader:
    """Reads one task's lines. A pattern that costs too much is stopped: it is not tried again for this task."""

    def __init__(self, patterns: Mapping[str, re.Pattern[str]]) -> None:
        self._patterns = patterns if isinstance(patterns, MetricPatterns) else MetricPatterns(patterns)
        self._stopped: Dict[str, None] = {}
        self._second = 0.0  # monotonic seconds: when the present second began
        self._spent: Dict[str, float] = {}  # CPU seconds in it, by metric
        self._reading, self._since = _KERAS, 0.0

    @property
    def stopped(self) -> List[str]:
        """The metrics whose patterns are not tried any more."""
        if not self._patterns.stops:
            return []
        return [name for name in self._patterns if self._is_stopped(name)]

    def find(self, lines: Iterable[str], possible: Callable[[str, float], bool]) -> Dict[str, float]:
        """As metric_lines.find, within SECOND_CPU_S: what is found until then."""
        now = time.monotonic()
        if now - self._second >= 1.0:
            self._second, self._spent = now, {}
        left_s = SECOND_CPU_S - sum(self._spent.values())
        if left_s <= 0 or threading.current_thread() is not threading.main_thread():
            return {}
        found: Found = {}
        self._reading, self._since = _KERAS, time.thread_time()
        try:
            limited(left_s, lambda: self._find(lines, possible, found))
        except TooSlow:
            self._next(_KERAS)
        if sum(self._spent.values()) >= SECOND_CPU_S:
            self._stop_the_costliest()
        return values_of(found)

    def _find(self, lines: Iterable[str], possible: Callable[[str, float], bool], found: Found) -> None:
        texts = matched_texts(lines)
        found.update(find_printed(texts))
        for name, pattern in self._patterns.items():
            if not self._is_stopped(name):
                self._next(name)
                find_one(texts, name, pattern, possible, found)
        self._next(_KERAS)

    def _next(self, name: str) -> None:
        """Notes what the last one has used, and that `name` begins."""
        now = time.thread_time()
        self._spent[self._reading] = self._spent.get(self._reading, 0.0) + now - self._since
        self._reading, self._since = name, now

    def _is_stopped(self, name: str) -> bool:
        stops = self._patterns.stops
        return bool(stops) and (name in self._stopped or stops.get(name, 0) >= TASKS_STOPPED)

    def _stop_the_costliest(self) -> None:
        name = max(self._spent, key=self._spent.__getitem__)
        if name != _KERAS and self._spent[name] >= STOPPED_FROM * SECOND_CPU_S:
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
