"""Test that tfdeploy starts its own processes without importing modules of the current folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tfdeploy.machine.own_command import own_command

PLANTED = "import os, sys\nos.write(2, b'%s of the current folder ran')\nos._exit(99)\n"


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write a file NAME.py to the current folder for each module NAME of the standard library, and
    for each other module that tfdeploy imports.

    Such a file ends the process if Python imports it.
    """
    others = (
        "yaml",
        "rich",
        "fabric",
        "paramiko",
        "msgspec",
        "tfdeploy",
        "sitecustomize",
        "usercustomize",
    )
    for name in (*sys.stdlib_module_names, *others):
        (tmp_path / f"{name}.py").write_text(PLANTED % name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "module", "code"),
    [
        (["--version"], "tfdeploy", 0),
        (["exec", "--json", "--", "true"], "tfdeploy", 2),
        (["report", "--help"], "tfdeploy", 0),
        ([], "tfdeploy.lab.boot", 1),
    ],
)
def test_no_file_of_current_folder_is_run(
    planted: Path, words: list[str], module: str, code: int
) -> None:
    done = subprocess.run(
        own_command(words, module),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "of the current folder" not in done.stderr and done.returncode == code, done.stderr


def test_empty_entry_in_pythonpath_is_not_current_folder(
    planted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", f":{planted}:.")
    monkeypatch.setattr(sys, "path", ["", ".", str(planted), *sys.path])
    done = subprocess.run(own_command(["--version"]), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_child_finds_modules_of_this_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "places").mkdir()
    (tmp_path / "places/only_here.py").write_text("print('found')\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "places")])
    assert (
        subprocess.run(
            own_command([], "only_here"), capture_output=True, text=True, check=True
        ).stdout
        == "found\n"
    )


def test_python_m_tfdeploy_imports_nothing_of_current_folder(planted: Path) -> None:
    """Test `python -m tfdeploy`.

    The test first removes the files that are named like a module which runpy imports. Python
    imports these modules before any code of tfdeploy can prevent it.
    """
    for name in _imported_by_runpy():
        (planted / f"{name}.py").unlink(missing_ok=True)
    (planted / "tfdeploy.py").unlink()
    root = str(Path(__file__).parents[3])
    command = [sys.executable, "-m", "tfdeploy", "exec", "--", "true"]
    env = {**os.environ, "PYTHONPATH": root}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "no inventory" in done.stderr, done.stderr


def _imported_by_runpy() -> set[str]:
    code = "import runpy, sys; print(*sys.modules)"
    return {
        name.partition(".")[0]
        for name in subprocess.check_output(
            [sys.executable, "-c", code], text=True, cwd="/"
        ).split()
    }
