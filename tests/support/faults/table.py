"""After `pytest -m fault`, print a table with the result and the seconds of every fault.

The table also has the faults in the list of lines.py that no test checks. If failed tests are run a
second time (`--last-failed`), their results are merged into the table of the first run. Sessions of
pytest without `-m fault` print only one line.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.faults.lines import GROUPS, LINES, number_of

MARK = "fault"
CACHE = "faults/tests"
WORST = ("failed", "skipped", "passed")
WIDTH = 84


class FaultTable:
    """A pytest plugin that collects the results of one test session. It runs in the main process of
    pytest, not in the workers.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.asked = MARK in str(config.option.markexpr)
        # {test: (its faults, its result, its seconds)}
        self.tests: dict[str, tuple[list[str], str, float]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        faults = [str(text) for name, text in report.user_properties if name == MARK]
        if faults:
            _, before, seconds = self.tests.get(report.nodeid, (faults, "passed", 0.0))
            ended = min(before, report.outcome, key=WORST.index)
            self.tests[report.nodeid] = (faults, ended, seconds + report.duration)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self.tests:
            return
        # With `-p no:cacheprovider`, pytest has no cache.
        cache = getattr(self.config, "cache", None)
        if self.asked and cache is not None:
            earlier = cache.get(CACHE, {}) if self.config.option.lf else {}
            self.tests = {**earlier, **self.tests}
            cache.set(CACHE, self.tests)
        rows = _rows(self.tests)
        if self.asked:
            for line in _table(rows):
                terminalreporter.write_line(line, red=" failed " in line)
        terminalreporter.write_line(_summary(rows))


def collected(items: list[pytest.Item]) -> None:
    """Attach to each test the faults that it checks, so that the report of the test contains them.

    Raises UsageError if a fault does not name a line of lines.py.
    """
    for item in items:
        for mark in item.iter_markers(MARK):
            try:
                number_of(mark.args[0])
            except (ValueError, IndexError) as error:
                raise pytest.UsageError(f"{item.nodeid}: {error}") from error
            item.user_properties.append((MARK, mark.args[0]))


def further_shapes(items: list[pytest.Item]) -> list[pytest.Item]:
    """Return the `long` tests that are not needed: each of their faults is also checked by a test
    without this mark, or by an earlier `long` test. A `long` test without faults is always needed.
    """
    shown: set[str] = set()
    further = []
    for item in sorted(items, key=_is_long):
        faults = {str(mark.args[0]) for mark in item.iter_markers(MARK)}
        if faults and faults <= shown and _is_long(item):
            further.append(item)
        shown |= faults
    return further


def _is_long(item: pytest.Item) -> bool:
    return any(item.iter_markers("long"))


def _rows(tests: dict[str, tuple[list[str], str, float]]) -> dict[str, tuple[str, float]]:
    """Return {fault: (the worst result of its tests, the sum of their seconds)}."""
    rows: dict[str, tuple[str, float]] = {}
    for faults, ended, seconds in tests.values():
        for fault in faults:
            before, more = rows.get(fault, ("passed", 0.0))
            rows[fault] = (min(before, ended, key=WORST.index), more + seconds)
    return rows


def _table(rows: dict[str, tuple[str, float]]) -> Iterator[str]:
    for group, lines in GROUPS.items():
        yield ""
        yield f"{group:{WIDTH}} result   seconds"
        for number in lines:
            mine = sorted(fault for fault in rows if number_of(fault) == number)
            if not mine:
                yield f"  {f'{number:2} {lines[number]}: no test':{WIDTH - 2}} -"
            for fault in mine:
                ended, seconds = rows[fault]
                expected_text = f"{number:2} {fault.partition(' ')[2]}"
                yield f"  {expected_text[: WIDTH - 3]:{WIDTH - 2}} {ended:7} {seconds:8.1f}"
    yield ""


def _summary(rows: dict[str, tuple[str, float]]) -> str:
    shown = {number_of(fault) for fault in rows}
    counts = {
        ended: sum(1 for each, _ in rows.values() if each == ended) for ended in reversed(WORST)
    }
    said = ", ".join(f"{count} {ended}" for ended, count in counts.items() if count)
    return f"{len(rows)} faults of {len(shown)} of {len(LINES)} lines: {said}"
