"""Install the last tagged version of tfdeploy, whose runs must continue under this version."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from support.lab.commandline import REPOSITORY


def install_last_version(folder: Path) -> Path:
    """Build the wheel of the newest tag `v*`, install it to a folder and return the folder for
    PYTHONPATH.

    Skips the test if this clone has no such tag. The source comes from `git archive` and not from
    `git worktree`, because a killed test would leave a worktree registered in the repository.
    """
    described = _git("describe", "--tags", "--match", "v*", "--abbrev=0")
    tag = described.stdout.decode().strip()
    if described.returncode:
        pytest.skip("needs a tag of the last version in this clone: git fetch --tags")
    source, installed = folder / "source", folder / "installed"
    source.mkdir(parents=True)
    # The tarfile module of Python 3.11.2 has no filter="data".
    archive = _git("archive", tag, check=True).stdout
    subprocess.run(["tar", "-x", "-C", str(source)], input=archive, check=True)
    build = ["uv", "build", "--wheel", "--no-build-isolation", "--out-dir", str(folder)]
    done = subprocess.run(
        [str(Path(sys.executable).with_name(build[0])), *build[1:], str(source)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(installed)
    return installed


def _git(*args: str, check: bool = False) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["git", *args], cwd=REPOSITORY, capture_output=True, check=check)
