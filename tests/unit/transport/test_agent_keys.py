"""The keys of an ssh-agent that may be stuck."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tfdeploy.transport import keys
from tfdeploy.transport.target import Target


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # paramiko leaves its socket to the collector
def test_an_ssh_agent_that_says_nothing_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "AGENT_S", 0.2)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "agent"))
        silent.listen()
        monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "agent"))
        offer = keys.Offer(Target(hostname="10.0.0.1", port=22, user="ml", identity_files=()))
        assert offer.empty
        assert any("ssh-agent does not answer" in said for said in offer.notes), offer.notes
