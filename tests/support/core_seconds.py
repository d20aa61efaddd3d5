"""Core-seconds: a table by folder at the end of a session, and the limit of one test.

A test's figure is the CPU time of its worker process and of the processes that it has waited for. What
goes on by itself (agents, sshd, a run's tasks) has other parents; the last line has all of it, with
whatever else this machine did meanwhile.
"""

from __future__ import annotations

import os
import resource
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

NAME = "core-seconds"
LIMIT_S = 8.0
MARKS_OF_HEAVY_TESTS = ("long", "soak", "tensorflow")
REFERENCE_LOOP_S = 0.03  # of `_loop_s` on the machine for which the limit was chosen


class TestMeter:
    """In each process that runs tests. CPU time, not elapsed time: a busy machine makes no test fail."""

    __test__ = False  # of pytest: this is no test

    def __init__(self, used_s: Callable[[], float] | None = None) -> None:
        self._used_s = used_s or _used_s
        self._before = self._used_s()
        self._limit_s = LIMIT_S * max(1.0, _loop_s() / REFERENCE_LOOP_S)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
        report = yield
        now = self._used_s()
        used, self._before = now - self._before, now
        report.user_properties.append((NAME, used))
        is_heavy = call.when == "call" and used > self._limit_s
        if is_heavy and report.passed and not any(item.get_closest_marker(name) for name in MARKS_OF_HEAVY_TESTS):
            report.outcome = "failed"
            report.longrepr = f"{used:.1f} core-seconds, over {self._limit_s:.1f}: make the test lighter, or mark it `long`"
        return report


class FolderTable:
    """In the process that a person sees."""

    def __init__(self) -> None:
        self._by_folder: Counter[str] = Counter()
        self._begun = _machine_s()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        used = sum(value for name, value in report.user_properties if name == NAME)
        self._by_folder[str(Path(report.nodeid.partition("::")[0]).parent)] += used

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        folders: Counter[str] = Counter()
        for folder, used in self._by_folder.items():
            folders["/".join(folder.split("/")[:3])] += used
        parts = ", ".join(f"{folder} {used:.0f}" for folder, used in folders.most_common() if used >= 1)
        line = f"core-seconds: {parts or 'less than 1'}; the whole machine meanwhile: {_machine_s() - self._begun:.0f}"
        terminalreporter.write_line(line)


def _used_s() -> float:
    own, waited_for = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + waited_for.ru_utime + waited_for.ru_stime


def _machine_s() -> float:
    """All cores' time in user, nice, system, irq and softirq."""
    fields = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    return sum(fields[at] for at in (0, 1, 2, 5, 6)) / os.sysconf("SC_CLK_TCK")


def _loop_s() -> float:
    """What a fixed piece of work takes here: the quickest of three, for what runs beside it slows it too."""
    return min(_one_loop_s() for _ in range(3))


def _one_loop_s() -> float:
    begun, total = time.process_time(), 0
    for number in range(1_000_000):
        total += number
    return time.process_time() - begun
