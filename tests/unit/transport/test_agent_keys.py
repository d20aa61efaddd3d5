"""The keys of an ssh-agent that may be stuck."""

from __future__ import annotations

import threading

import pytest

from tfdeploy.transport import keys
from tfdeploy.transport.target import Target


def test_an_ssh_agent_that_says_nothing_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()

    class Stuck:
        def get_keys(self) -> tuple[object, ...]:
            over.wait(20)
            return ()

        def close(self) -> None:
            over.set()

    monkeypatch.setattr(keys, "AGENT_S", 0.2)
    monkeypatch.setattr(keys.paramiko, "Agent", Stuck)
    offer = keys.Offer(Target(hostname="10.0.0.1", port=22, user="ml", identity_files=()))
    assert offer.empty
    assert any("ssh-agent does not answer: no word" in said for said in offer.notes), offer.notes
    offer.close()
