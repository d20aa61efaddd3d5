"""Test how a host resolves the names of the hosts in the cluster, whatever its name server does."""

from __future__ import annotations

import socket
import threading
import time
from typing import Any

import pytest

from tfdeploy.agent.host.network import resolving


def test_addresses_of_names(monkeypatch: pytest.MonkeyPatch) -> None:
    def look_up(name: str, *more: Any, **options: Any) -> list[Any]:
        if name == "none.lan":
            raise socket.gaierror(socket.EAI_NONAME, "not known")
        if name == "busy.lan":
            raise socket.gaierror(socket.EAI_AGAIN, "try again")
        return [
            (0, 0, 0, "", ("fe80::2%eth0", 0, 0, 2)),
            (0, 0, 0, "", ("10.0.0.2", 0)),
            (0, 0, 0, "", ("10.0.0.2", 0)),
        ]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    assert resolving.start_lookups(["two.lan", "none.lan", "busy.lan"])() == {
        "two.lan": ["10.0.0.2", "fe80::2"],
        "none.lan": [],
    }


def test_a_dead_name_server_holds_nothing_up_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()

    def look_up(name: str, *more: Any, **options: Any) -> list[Any]:
        if name != "two.lan":
            over.wait(120)
        return [(0, 0, 0, "", ("10.0.0.2", 0))]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.setattr(resolving, "TIMEOUT_S", 0.3)
    begun = time.monotonic()
    resolved = resolving.start_lookups(["two.lan", "dead.lan", "two.lan"])()
    over.set()
    assert resolved == {"two.lan": ["10.0.0.2"]} and time.monotonic() - begun < 60


def test_localhost_is_this_host() -> None:
    assert (
        "127.0.0.1" in resolving.start_lookups(["localhost"])()["localhost"]
        and resolving.start_lookups([])() == {}
    )
