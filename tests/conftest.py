"""Provide the labs that tests share, one of each kind per pytest worker, and show the hosts' logs
when a test fails.

The tests of one worker share hosts, so each test uses its own job name. Labs are always removed at
the end. The next session removes the labs of a session that was killed.
"""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import settings

from support.core_seconds import FolderTable, TestMeter
from support.faults.second_try import SecondTry
from support.faults.table import FaultTable, collected, further_shapes
from support.lab.commandline import Tfdeploy
from support.lab.host_commands import host_command
from support.needs import require
from support.waiting import wait_for
from tfdeploy import lab
from tfdeploy.errors import UsageError
from tfdeploy.lab import Lab
from tfdeploy.lab.processes import identify

ISOLATED_HOSTS, FEW_HOSTS = 4, 3
LOOPBACK_HOSTS = 3
LABS: list[Lab] = []
NUMBERS = itertools.count()
FAILED = pytest.StashKey[bool]()
_TEST_LAB = re.compile(r"test-(\d+)-(\d+)-")


# The speed of machines varies, so Hypothesis gets no deadline for an example. `make soak` sets a
# larger number of examples.
EXAMPLES = int(os.environ.get("TFDEPLOY_SOAK_EXAMPLES", "15"))
settings.register_profile("suite", deadline=None, max_examples=EXAMPLES)
settings.load_profile("suite")

# Under `nohup make test &`, SIGINT and SIGHUP are ignored, and the processes that tests start would
# inherit this. A handler is not inherited, so this process installs handlers instead. The handler
# of SIGHUP does nothing, so this process outlives the terminal.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)


def pytest_configure(config: pytest.Config) -> None:
    is_worker = hasattr(config, "workerinput")
    # A pytest worker ends when the process that started it ends. So the worker can ignore SIGHUP.
    if is_worker:
        signal.signal(signal.SIGHUP, lambda *_: None)
    if is_worker or not config.getoption("numprocesses", None):
        config.pluginmanager.register(TestMeter(), "core-seconds-of-tests")
    if not is_worker:
        config.pluginmanager.register(FolderTable(), "core-seconds-by-folder")
        config.pluginmanager.register(FaultTable(config), "fault-table")
        config.pluginmanager.register(SecondTry(config), "second-try")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Under `make faults`, ignore files without fault tests. They are two thirds of all files, and
    each pytest worker would import all of them."""
    wanted = (
        _asks_for_faults(config)
        and collection_path.name.startswith("test_")
        and collection_path.is_file()
    )
    return True if wanted and b"fault" not in collection_path.read_bytes() else None


def _asks_for_faults(config: pytest.Config) -> bool:
    return str(config.option.markexpr).startswith("fault")


@pytest.hookimpl(trylast=True)  # This hook runs after `-m` has selected the tests.
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    collected(items)
    if _asks_for_faults(config):
        further = further_shapes(items)
        items[:] = [item for item in items if item not in further]
        config.hook.pytest_deselected(items=further)
    longest = {
        item.path
        for item in items
        if any(item.iter_markers("tensorflow")) or any(item.iter_markers("long"))
    }
    # Files with the longest tests come first. Otherwise one worker might begin such a file when all
    # other workers are done.
    items.sort(key=lambda item: item.path not in longest)


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in item.iter_markers("needs"):
        require(*marker.args)


def _is_alive(pid: int, start: int) -> bool:
    """Return True if the process still runs. Another process with the same pid does not count: in a
    container, the first processes have the same few pids each time."""
    process = identify(pid)
    return process is not None and process.start_ticks == start


def _sweep_dead_sessions() -> None:
    for name in lab.names():
        session = _TEST_LAB.match(name)
        if session and not _is_alive(int(session[1]), int(session[2])):
            with suppress(UsageError):  # another worker has removed the lab already
                lab.down(name)


@pytest.fixture(scope="session")
def new_lab() -> Iterator[Callable[..., Lab]]:
    """Return new_lab(kind, count, **wishes), which creates a separate lab for tests that break
    hosts. `wishes` are further arguments of lab.create_or_revive. The labs are removed at the end.
    """
    _sweep_dead_sessions()
    made: list[Lab] = []
    process = identify(os.getpid())
    start = process.start_ticks if process else 0

    def make(kind: str, count: int, **wishes: object) -> Lab:
        if kind == "isolated":
            require("isolated lab")
        name = f"test-{os.getpid()}-{start}-{next(NUMBERS)}"
        try:
            fresh = lab.create_or_revive(name, kind, count, **wishes)
        except BaseException:
            with suppress(UsageError):
                lab.down(name)
            raise
        made.append(fresh)
        LABS.append(fresh)
        return fresh

    try:
        yield make
    finally:
        for each in made:
            if each.root.exists():
                each.down()


@pytest.fixture(scope="session")
def loopback_lab(new_lab: Callable[..., Lab]) -> Lab:
    return new_lab("loopback", LOOPBACK_HOSTS)


@pytest.fixture(scope="session")
def isolated_lab(new_lab: Callable[..., Lab]) -> Lab:
    return new_lab("isolated", ISOLATED_HOSTS)


@pytest.fixture(scope="session")
def few_hosts(new_lab: Callable[..., Lab]) -> Lab:
    """Return an isolated lab for tests that need only one ps and two workers, because the CPU time
    of each verb grows with the number of hosts."""
    return new_lab("isolated", FEW_HOSTS)


@pytest.fixture(scope="session")
def pair(new_lab: Callable[..., Lab]) -> Lab:
    """Return an isolated lab for tests that need only one ps and one worker."""
    return new_lab("isolated", 2)


@pytest.fixture
def tfdeploy(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Callable[[Lab], Tfdeploy]]:
    """Return a function. tfdeploy(lab) returns a Tfdeploy object, which stands for an operator: it
    has its own home folder and runs the real command line.

    At the end, processes that the operator left running are ended. After a failed test the
    operator's runs are also stopped, because they would disturb the next test of that lab.
    """
    made: list[Tfdeploy] = []

    def make(where: Lab) -> Tfdeploy:
        made.append(Tfdeploy(where, tmp_path / f"operator-{len(made)}"))
        return made[-1]

    yield make
    for each in made:
        each.end_all()
        if FAILED in request.node.stash:
            each.stop_all()


@pytest.fixture(name="wait_for")
def _wait_for() -> Callable[..., object]:
    return wait_for


NEWEST_LOGS = r"""cd ~/tfdeploy 2>/dev/null || exit 0
find . -path "*/runs/*" -mmin -5 \
    \( -name out.log -o -name status.json -o -name journal -o -name "minder*log" \) |
head -n 12 | while read -r each; do echo "== $each"; tail -c 1500 "$each"; echo; done"""


def _host_words(where: Lab, host: str) -> str:
    words = host_command(where, host, ["sh", "-c", NEWEST_LOGS])
    done = subprocess.run(
        words, capture_output=True, text=True, errors="replace", timeout=10, check=False
    )
    return f"{where.read_sshd_output_tail(host)[-600:]}\n{done.stdout[-6000:]}{done.stderr[-300:]}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Add the output of the labs' hosts to the report of a failed test."""
    report = yield
    if call.when == "call" and report.failed:
        item.stash[FAILED] = True
        used = [value for value in getattr(item, "funcargs", {}).values() if value in LABS]
        for where in used:
            for host in where.hosts:
                try:
                    text = _host_words(where, host)
                # If this fails, for example because a host is off, the report must still show why
                # the test failed.
                except Exception as error:  # noqa: BLE001
                    text = str(error)
                report.sections.append((f"{where.kind} host {host}", text))
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print one line for each reason why tests were skipped: the reason, the number of these tests,
    and what to type to run them."""
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in skipped)
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"NOT TESTED: {count} x {reason}", yellow=True)
