"""What passed only at the second try: the last line of `make test`, which runs once more what failed (`--last-failed`)."""

from __future__ import annotations

import pytest


class SecondTry:
    """One test session, as its controller sees it. It says nothing unless that session runs what failed before."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._passed: dict[str, bool] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        before = self._passed.get(report.nodeid, True)
        self._passed[report.nodeid] = before and report.passed

    def pytest_unconfigure(self) -> None:
        """After pytest's own last line, so that nobody has to scroll for it."""
        names = sorted(name for name, passed in self._passed.items() if passed)
        if names and self._config.getoption("lf", False):
            self._config.get_terminal_writer().line(f"passed only at the second try: {', '.join(names)}", yellow=True)
