"""Test files that are written under a temporary name and then renamed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tfdeploy.agent.host import atomic


@pytest.mark.parametrize("renames_first", [True, False])
def test_interrupted_write_leaves_no_temporary_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, renames_first: bool
) -> None:
    rename = os.rename

    def interrupted(old: str, new: str) -> None:
        if renames_first:
            rename(old, new)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        atomic.write_bytes(str(tmp_path / "state"), b"new")
    assert os.listdir(tmp_path) == ["state"] * renames_first


def test_failed_write_names_the_file_and_not_the_temporary_one(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    with pytest.raises(OSError, match="directory") as failure:
        atomic.write_bytes(str(tmp_path / "state"), b"new")
    assert failure.value.filename == str(tmp_path / "state")
    assert os.listdir(tmp_path) == ["state"]
