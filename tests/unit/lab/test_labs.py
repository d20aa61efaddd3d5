"""Test which labs (simulated hosts on this machine) are refused."""

from __future__ import annotations

import pytest

from tfdeploy import lab
from tfdeploy.errors import UsageError


def test_only_isolated_hosts_may_have_another_root() -> None:
    with pytest.raises(UsageError, match="share this machine's root"):
        lab.create_or_revive("none", "loopback", 1, rootfs="/srv/trixie")


@pytest.mark.parametrize("gpus", ["all", "0,1", "[0", "none: 1"])
def test_gpus_that_an_inventory_refuses_make_no_lab(gpus: str) -> None:
    with pytest.raises(UsageError, match="is no value of `gpus:`") as failure:
        lab.create_or_revive("none", "loopback", 1, gpus=gpus)
    assert failure.value.where == "--gpus"
    assert "none" not in lab.names()
