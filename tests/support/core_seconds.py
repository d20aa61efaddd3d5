"""Measure the CPU time of tests in core-seconds. Print the sum for each folder, and fail tests that
exceed a limit.

A test's CPU time is that of its pytest process and of the child processes for which that process
has waited. Agents, sshd and a run's tasks have other parents and do not count. The sum that is
printed for the whole machine includes everything that ran during the test session.
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
# How long the work of `_time_work` took on the machine for which LIMIT_S was chosen.
REFERENCE_WORK_S = 0.02


class TestMeter:
    """Measures each test, in each process that runs tests, and fails tests that exceed the limit.

    The meter uses CPU time, so that no test fails because it had to wait for a CPU. The limit is
    higher on a slower machine. It is also higher while other work on the same CPU slows down every
    instruction.
    """

    # pytest must not collect this class.
    __test__ = False

    def __init__(self, used_s: Callable[[], float] | None = None) -> None:
        self._used_s = used_s or _used_s
        self._before = self._used_s()
        self._slowdown = max(1.0, _work_s() / REFERENCE_WORK_S)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self,
        item: pytest.Item,
        call: pytest.CallInfo[None],
    ) -> Iterator[None]:
        report = yield
        now = self._used_s()
        used, self._before = now - self._before, now
        report.user_properties.append((NAME, used))
        is_heavy = call.when == "call" and used > LIMIT_S * self._slowdown
        may_be_heavy = any(item.get_closest_marker(name) for name in MARKS_OF_HEAVY_TESTS)
        if is_heavy and report.passed and not may_be_heavy:
            self._fail_if_over_limit(report, used)
        return report

    def _fail_if_over_limit(self, report: pytest.TestReport, used: float) -> None:
        """Fail the test if it used too much CPU time, unless other work on the machine explains
        this.
        """
        limit_s = LIMIT_S * max(self._slowdown, _slowest_work_s() / REFERENCE_WORK_S)
        if used > limit_s:
            report.outcome = "failed"
            report.longrepr = (
                f"{used:.1f} core-seconds exceed the limit of {limit_s:.1f}: "
                "make the test lighter, or mark it `long` and let a lighter one show the same"
            )


class FolderTable:
    """Prints the core-seconds of each folder, in the process that prints pytest's summary."""

    def __init__(self) -> None:
        self._by_folder: Counter[str] = Counter()
        self._machine_s_before = _machine_s()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        used = sum(value for name, value in report.user_properties if name == NAME)
        self._by_folder[str(Path(report.nodeid.partition("::")[0]).parent)] += used

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        folders: Counter[str] = Counter()
        for folder, used in self._by_folder.items():
            folders["/".join(folder.split("/")[:3])] += used  # at most three levels
        sums = [f"{folder} {used:.0f}" for folder, used in folders.most_common() if used >= 1]
        text = ", ".join(sums) or "less than 1"
        machine_s = _machine_s() - self._machine_s_before
        line = f"core-seconds: {text}; the whole machine meanwhile: {machine_s:.0f}"
        terminalreporter.write_line(line)


def _used_s() -> float:
    """Return the CPU seconds of this process and of the children for which it has waited."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def _machine_s() -> float:
    """Return the CPU seconds of all cores since boot: user, nice, system, irq and softirq."""
    first_line = Path("/proc/stat").read_text().splitlines()[0]
    ticks = [int(field) for field in first_line.split()[1:]]
    return sum(ticks[column] for column in (0, 1, 2, 5, 6)) / os.sysconf("SC_CLK_TCK")


def _work_s() -> float:
    """Return the CPU seconds that fixed work takes: the fastest of three runs, because other load
    may slow a run.
    """
    return min(_time_work() for _ in range(3))


def _slowest_work_s() -> float:
    """Return the CPU seconds that the fixed work takes under the current load of the machine: the
    slowest of ten runs.
    """
    return max(_time_work() for _ in range(10))


def _time_work() -> float:
    """Return the CPU seconds that it takes to fill a table.

    Like most tests, the work needs fresh memory. On some virtual machines that is slow, while a
    loop that only counts is as fast as elsewhere.
    """
    began = time.process_time()
    {str(number): number for number in range(100_000)}
    return time.process_time() - began
