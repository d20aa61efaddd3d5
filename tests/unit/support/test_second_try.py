"""Test that `make test` and `make faults` repeat a failed test once, if the test starts TensorFlow.

Each of these tests starts its own pytest.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.stopwatch import DEADLINE_S

TESTS = Path(__file__).parents[2]
CONFTEST = f"""
import sys
sys.path.insert(0, {str(TESTS)!r})
from support.faults.second_try import SecondTry
def pytest_configure(config):
    for mark in ("tensorflow", "fault", "soak"):
        config.addinivalue_line("markers", mark)
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(SecondTry(config))
"""
HEAD = """
from pathlib import Path
import pytest
pytestmark = pytest.mark.fault
tensorflow = pytest.mark.tensorflow
def is_second(name):
    ran = Path(__file__).with_name(name)
    there = ran.exists()
    ran.touch()
    return there
def test_good(): pass
"""
CASES = {
    "test_flaky_tensorflow": "@tensorflow\ndef test_flaky_tensorflow(): assert is_second('a')\n",
    "test_bad_tensorflow": "@tensorflow\ndef test_bad_tensorflow(): assert False\n",
    "test_flaky": "def test_flaky(): assert is_second('b')\n",
    "test_broken_setup": "@pytest.fixture\ndef broken(): assert is_second('c')\n"
    "@tensorflow\ndef test_broken_setup(broken): pass\n",
    "test_crash": "import os\n@tensorflow\ndef test_crash(): is_second('d') or os._exit(1)\n",
    "not imported": "raise ImportError\n",
}
SECOND = "passed only at the second try: "


def make_faults(folder: Path, *cases: str, side_by_side: str = "") -> tuple[bool, str]:
    """Run these test cases with `make faults`.

    Return whether `make` succeeds, and the output without the last line, which make itself prints.
    """
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_these.py").write_text(HEAD + "".join(CASES[case] for case in cases))
    words = [
        "make",
        "-f",
        str(TESTS.parent / "Makefile"),
        "-o",
        "setup",
        "faults",
        f"PY={sys.executable}",
    ]
    words += [f"TESTS={folder}", f"SIDE_BY_SIDE={side_by_side}"]
    outer_make = ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")
    env = {name: text for name, text in os.environ.items() if name not in outer_make}
    env |= {"PYTEST_ADDOPTS": f"-q -c /dev/null --rootdir {folder}"}
    done = subprocess.run(
        words, cwd=folder, env=env, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    return done.returncode == 0, done.stdout.strip()


@pytest.mark.parametrize("side_by_side", ["", "-n 2"], ids=["one process", "workers"])
def test_last_line_names_tests_that_passed_at_second_try(tmp_path: Path, side_by_side: str) -> None:
    passed, output = make_faults(
        tmp_path, "test_flaky_tensorflow", "test_broken_setup", side_by_side=side_by_side
    )
    names = "test_these.py::test_broken_setup, test_these.py::test_flaky_tensorflow"
    assert passed and output.splitlines()[-1] == SECOND + names, output


@pytest.mark.parametrize(
    "cases",
    [
        ["test_flaky"],
        ["test_flaky", "test_flaky_tensorflow"],
        ["test_flaky", "test_bad_tensorflow"],
        ["test_crash"],
        ["test_flaky_tensorflow", "not imported"],
    ],
    ids=" and ".join,
)
def test_other_failure_gets_no_second_try(tmp_path: Path, cases: list[str]) -> None:
    passed, output = make_faults(
        tmp_path, *cases, side_by_side="-n 2" if "test_crash" in cases else ""
    )
    assert (
        not passed and SECOND not in output and len(re.findall(r"\d+ \w+ in [\d.]+s", output)) == 1
    ), output


def test_test_that_fails_twice_fails_and_is_not_named(tmp_path: Path) -> None:
    passed, output = make_faults(tmp_path, "test_flaky_tensorflow", "test_bad_tensorflow")
    assert (
        not passed and output.splitlines()[-1] == SECOND + "test_these.py::test_flaky_tensorflow"
    ), output


def test_nothing_is_printed_if_all_pass(tmp_path: Path) -> None:
    passed, output = make_faults(tmp_path)
    assert passed and output.splitlines()[-1].startswith("1 passed"), output
