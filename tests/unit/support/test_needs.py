"""Test that a test is skipped if this machine lacks what the test needs.

In CI, such a test fails. It is skipped only if CI is allowed to lack what the test needs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support import needs, trials
from tfdeploy.lab import capabilities
from tfdeploy.lab.capabilities import MissingCapability

LACKS = {
    "mounts": [MissingCapability("mounts", "unshare: Operation not permitted", "sudo make test")],
}
REASON = (
    "no mounts (unshare: Operation not permitted); no nftables (nft is not installed)"
    "; to have it: `apt-get install nftables`; `sudo make test`"
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
def test_missing_need_skips_or_fails(
    monkeypatch: pytest.MonkeyPatch, ci: str, may_lack: str, outcome: type[BaseException]
) -> None:
    monkeypatch.setattr(
        capabilities, "find_missing_capabilities", lambda name, command: LACKS.get(name, [])
    )
    monkeypatch.setattr(trials, "results", lambda: {"nftables": "nft is not installed"})
    monkeypatch.setenv("CI", ci)
    monkeypatch.setenv(needs.MAY_LACK, may_lack)
    with pytest.raises(outcome) as ended:
        needs.require("links", "mounts", "nftables")
    assert str(ended.value).startswith(REASON)
    needs.require("links")


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("environments of other accounts", "docker run --cap-add=SYS_PTRACE IMAGE"),
        ("choice of a pid", "docker run --privileged IMAGE"),
        ("setuid programs", "docker run --security-opt=no-new-privileges=false IMAGE"),
    ],
)
def test_message_names_option_of_container(
    monkeypatch: pytest.MonkeyPatch, name: str, remedy: str
) -> None:
    monkeypatch.setattr(trials, "results", lambda: {name: "Permission denied"})
    lack = trials.find_lack(name)
    assert lack is not None and lack.remedy == remedy


@pytest.mark.needs("setuid programs", "setpriv")
def test_ignored_setuid_bits_are_detected(tmp_path: Path) -> None:
    command = ["setpriv", "--no-new-privs", sys.executable, "-m", "support.trials", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, check=True, timeout=60, env=environment)
    assert json.loads(done.stdout)["setuid programs"] == "setuid bits are ignored"
