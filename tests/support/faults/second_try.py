"""The second try of tests that start TensorFlow: `make test` runs those again by themselves that failed beside others.

Several TensorFlow processes start at once in each of them, and TensorFlow has time limits of its own.
The first session ends with ONLY_TENSORFLOW if nothing else failed; only then there is a second one, with
`--last-failed`, whose last line names what passed in it.
"""

from __future__ import annotations

import pytest

ONLY_TENSORFLOW = 10  # an exit code that pytest does not have


class SecondTry:
    """One test session, as its controller sees it."""

    def __init__(self, config: pytest.Config) -> None:
        self._is_second = bool(config.getoption("lf", False))
        self._config = config
        self._passed: dict[str, bool] = {}
        self._others_failed = False

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._others_failed |= report.failed

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        before = self._passed.get(report.nodeid, True)
        self._passed[report.nodeid] = before and report.passed
        self._others_failed |= report.failed and "tensorflow" not in report.keywords

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if exitstatus == pytest.ExitCode.TESTS_FAILED and not self._is_second and not self._others_failed:
            session.exitstatus = ONLY_TENSORFLOW

    def pytest_unconfigure(self) -> None:
        """After pytest's own last line, so that nobody has to scroll for it."""
        names = sorted(name for name, passed in self._passed.items() if passed)
        if names and self._is_second:
            self._config.get_terminal_writer().line(f"passed only at the second try: {', '.join(names)}", yellow=True)
