"""What `make test` says of tests that failed beside others and passed alone; with a pytest of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[2]
CONFTEST = f"""
import sys
sys.path.insert(0, {str(TESTS)!r})
from support.faults.second_try import SecondTry
def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(SecondTry(config))
"""
# `first` is there once the flaky test has run
FLAKY = """
from pathlib import Path
FIRST = Path(__file__).with_name("first")
def test_good(): pass
def test_flaky():
    ran = FIRST.exists()
    FIRST.touch()
    assert ran
"""
BAD = "def test_bad(): assert False\n"
LAST_FAILED = ("--last-failed", "--last-failed-no-failures", "none")


def run(folder: Path, *words: str) -> tuple[int, str]:
    """A test session there: its exit code and its last line."""
    command = [sys.executable, "-m", "pytest", "-q", "-c", "/dev/null", "--rootdir", str(folder), *words, str(folder)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout.strip().splitlines()[-1]


def write(folder: Path, text: str) -> None:
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_these.py").write_text(text)


def test_what_passed_at_the_second_try_is_the_last_line(tmp_path: Path) -> None:
    write(tmp_path, FLAKY)
    code, last = run(tmp_path, "-n", "2")
    assert code == 1 and last.startswith("1 failed, 1 passed")
    assert run(tmp_path, *LAST_FAILED) == (0, "passed only at the second try: test_these.py::test_flaky")


def test_what_fails_twice_fails_and_is_not_named(tmp_path: Path) -> None:
    write(tmp_path, FLAKY + BAD)
    assert run(tmp_path)[0] == 1
    assert run(tmp_path, *LAST_FAILED) == (1, "passed only at the second try: test_these.py::test_flaky")
    code, last = run(tmp_path, *LAST_FAILED)
    assert code == 1 and last.startswith("1 failed")


def test_where_all_passed_nothing_is_said(tmp_path: Path) -> None:
    write(tmp_path, "def test_good(): pass\n")
    code, last = run(tmp_path)
    assert code == 0 and last.startswith("1 passed")
    code, last = run(tmp_path, *LAST_FAILED)
    assert "second try" not in last
