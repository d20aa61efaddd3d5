"""Test which Python interpreter the hosts of a lab use if the user names none."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tfdeploy import lab


def make_python(folder: Path, name: str, *, has_tensorflow: bool) -> str:
    """Create a fake interpreter, which always gives the same answer when asked for TensorFlow.
    Return its path.
    """
    folder.mkdir(parents=True, exist_ok=True)
    python = folder / name
    python.write_text(f"#!/bin/sh\nexit {int(not has_tensorflow)}\n")
    python.chmod(0o755)
    return str(python)


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make tfdeploy believe that the interpreter of this process has no TensorFlow."""
    monkeypatch.setattr("tfdeploy.lab.interpreter.find_spec", lambda name: None)


def test_interpreter_of_this_process_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tfdeploy.lab.interpreter.find_spec", lambda name: name)
    assert lab.find_tensorflow_python({"PATH": ""}) == sys.executable


@pytest.mark.usefixtures("without")
@pytest.mark.parametrize(
    ("active", "first", "second", "chosen"),
    [
        (True, True, True, "venv/bin/python3"),
        (False, True, True, "bin/python3"),
        (False, False, True, "bin/python"),
        (False, False, False, None),
    ],
)
def test_first_interpreter_with_tensorflow_is_chosen(
    tmp_path: Path, active: bool, first: bool, second: bool, chosen: str | None
) -> None:
    make_python(tmp_path / "venv/bin", "python3", has_tensorflow=active)
    make_python(tmp_path / "bin", "python3", has_tensorflow=first)
    make_python(tmp_path / "bin", "python", has_tensorflow=second)
    environ = {"VIRTUAL_ENV": str(tmp_path / "venv"), "PATH": str(tmp_path / "bin")}
    assert lab.find_tensorflow_python(environ) == (chosen and str(tmp_path / chosen))
