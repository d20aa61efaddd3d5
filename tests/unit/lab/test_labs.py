"""Test which labs (simulated hosts on this machine) are refused."""

from __future__ import annotations

import pytest

from tfdeploy import lab
from tfdeploy.errors import UsageError


def test_only_isolated_hosts_may_have_another_root() -> None:
    with pytest.raises(UsageError, match="share this machine's root"):
        lab.create_or_revive("none", "loopback", 1, rootfs="/srv/trixie")
