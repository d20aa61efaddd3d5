"""A test that needs what this machine lacks is skipped, and in CI it fails, but for what CI is told that it may lack."""

from __future__ import annotations

import pytest

from support import needs
from tfdeploy.lab import capabilities
from tfdeploy.lab.capabilities import Lack

LACKS = {
    "mounts": [Lack("mounts", "unshare: Operation not permitted", "sudo make test")],
    "nftables": [Lack("nftables", "nft is not installed", "apt-get install nftables")],
}
REASON = (
    "no mounts (unshare: Operation not permitted); no nftables (nft is not installed)"
    "; to have it: apt-get install nftables; sudo make test"
)


@pytest.mark.parametrize(
    ("ci", "may_lack", "outcome"),
    [
        ("", "", pytest.skip.Exception),
        ("1", "", pytest.fail.Exception),
        ("true", "mounts", pytest.fail.Exception),
        ("1", "mounts,nftables", pytest.skip.Exception),
        ("1", "all", pytest.skip.Exception),
    ],
)
def test_what_is_lacking_skips_or_fails(
    monkeypatch: pytest.MonkeyPatch, ci: str, may_lack: str, outcome: type[BaseException]
) -> None:
    monkeypatch.setattr(capabilities, "find_lacks", lambda name, command: LACKS.get(name, []))
    monkeypatch.setenv("CI", ci)
    monkeypatch.setenv(needs.MAY_LACK, may_lack)
    with pytest.raises(outcome) as ended:
        needs.need("links", "mounts", "nftables")
    assert str(ended.value).startswith(REASON)
    needs.need("links")
