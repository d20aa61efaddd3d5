"""Run the failed tests a second time if all of them are tests that start TensorFlow.

Such a test starts several TensorFlow processes at once and may fail because of TensorFlow's own
timeouts. If only such tests failed, the first session exits with ONLY_TENSORFLOW. Then `make test`
runs the failed tests once more, with no other tests at the same time (`--last-failed`). The last
line of that session names the tests that passed.
"""

from __future__ import annotations

import pytest

# The exit code of the first session. pytest itself does not use this code.
ONLY_TENSORFLOW = 10


class SecondTry:
    """A pytest plugin for both sessions of `make test`. If only tests that start TensorFlow have
    failed, the first session gets the exit code ONLY_TENSORFLOW. Then a second session repeats
    these tests and prints the names of the tests that passed.

    Only the process that prints the summary uses this plugin.
    """

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
        has_failed = exitstatus == pytest.ExitCode.TESTS_FAILED
        if has_failed and not self._is_second and not self._others_failed:
            session.exitstatus = ONLY_TENSORFLOW

    def pytest_unconfigure(self) -> None:
        """Print the names of the tests that passed, after pytest's own last line."""
        names = sorted(name for name, passed in self._passed.items() if passed)
        if names and self._is_second:
            text = f"passed only at the second try: {', '.join(names)}"
            self._config.get_terminal_writer().line(text, yellow=True)
