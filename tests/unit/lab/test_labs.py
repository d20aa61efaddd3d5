"""Test which labs (simulated hosts on this machine) are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfdeploy import lab
from tfdeploy.errors import Refused, UsageError


def test_only_isolated_hosts_may_have_another_root() -> None:
    with pytest.raises(UsageError, match="share this machine's root"):
        lab.create_or_revive("none", "loopback", 1, rootfs="/srv/trixie")


@pytest.mark.parametrize("gpus", ["all", "0,1", "[0", "none: 1", "2000", "[0, 0]"])
def test_gpus_that_an_inventory_refuses_make_no_lab(gpus: str) -> None:
    with pytest.raises(UsageError, match="is no value of `gpus:`") as failure:
        lab.create_or_revive("none", "loopback", 1, gpus=gpus)
    assert failure.value.where == "--gpus"
    assert "none" not in lab.names()


def test_state_folder_that_cannot_be_made_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tfdeploy").write_text("a file, not a folder")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with pytest.raises(Refused, match="labs cannot be kept here"):
        lab.names()
