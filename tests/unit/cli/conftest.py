"""Redirect the names that tfdeploy remembers for completion, so that tests do not write them to the
developer's own state folder. Give tests the folder of a project.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def separate_state_folder(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))


@pytest.fixture
def project_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make the folder of a project the current folder, without variables of tfdeploy."""
    folder = tmp_path / "digits"
    folder.mkdir()
    monkeypatch.chdir(folder)
    for name in [name for name in os.environ if name.startswith("TFDEPLOY_")]:
        monkeypatch.delenv(name)
    return folder
