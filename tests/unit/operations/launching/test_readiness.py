"""Test what a failed launch suggests if the program lacks a file that this machine has."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from support.status_answers import PLAN
from tfdeploy.operations.launching import readiness

LOGS = f"`tfdeploy logs {PLAN.run} --task worker:0`"


@pytest.mark.parametrize("is_here", [True, False])
def test_file_of_this_machine_that_program_lacks_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_here: bool
) -> None:
    path = tmp_path / "numbers.csv"
    if is_here:
        path.touch()
    cause = (
        "worker:0 on n2 failed with exit code 1: FileNotFoundError: [Errno 2] No such file or "
        f"directory: '{path}' (train.py:3)"
    )
    view = SimpleNamespace(first_death="worker:0", cause=cause)
    watch: Any = SimpleNamespace(view=lambda: view)
    monkeypatch.setattr(readiness, "last_lines", lambda *_: [])
    fleet: Any = None
    advice = readiness.first_death_error(fleet, PLAN, watch).next or ""
    assert (
        advice.startswith(f"{LOGS}; {path} is on this machine")
        if is_here
        else advice.startswith(f"{LOGS}; `tfdeploy exec -- ls -d")
    )
