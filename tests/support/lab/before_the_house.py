"""tfdeploy as it was at the tag `before-the-house`, taken out of this repository's history: runs of
that version must go on."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from support.lab.commandline import REPOSITORY
from support.waiting import in_ci

# the commit before the first file moved
BEFORE_THE_HOUSE = "f75d167a38c9784eab79e544f9ae52d1e31a3cb6"


def take_before_the_house(folder: Path) -> Path:
    """The folder, with that version's `tfdeploy/` in it: to be put on PYTHONPATH, ahead of what is
    installed.

    Skips where the history does not reach that far back; in CI that is a failure. `git archive`,
    not a worktree: a killed test would leave the entry of its worktree in the repository.
    """
    packed = subprocess.run(
        ["git", "archive", BEFORE_THE_HOUSE, "tfdeploy"],
        cwd=REPOSITORY,
        capture_output=True,
        check=False,
    )
    if packed.returncode:
        reason = (
            f"needs commit {BEFORE_THE_HOUSE[:7]} (before-the-house) in this clone's history: "
            "git fetch --unshallow"
        )
        pytest.fail(reason) if in_ci() else pytest.skip(reason)
    folder.mkdir(parents=True, exist_ok=True)
    # Python 3.11.2 has no filter="data"
    subprocess.run(["tar", "-x", "-C", str(folder)], input=packed.stdout, check=True)
    return folder
