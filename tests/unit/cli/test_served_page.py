"""Test the page that tfdeploy serves on loopback. Every user of the machine can connect to it."""

from __future__ import annotations

import socket
import threading
import urllib.request
from collections.abc import Iterator

import pytest

from support.waiting import wait_for
from tfdeploy.cli import served_page
from tfdeploy.cli.served_page import ServedPage

AT_ONCE = 3


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Iterator[ServedPage]:
    monkeypatch.setattr(served_page, "MAX_CONNECTIONS", AT_ONCE)
    server = ServedPage(lambda: "<p>seen</p>", 0)
    serving = threading.Thread(target=server.serve_forever, daemon=True)
    serving.start()
    yield server
    server.shutdown()
    server.server_close()
    serving.join()


def seen(page: ServedPage) -> str:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(page.url, timeout=30) as answer:
        return str(answer.read().decode())


def test_silent_connections_use_few_threads(page: ServedPage) -> None:
    before = threading.active_count()
    idle = [socket.create_connection(("127.0.0.1", page.server_port)) for _ in range(3 * AT_ONCE)]
    wait_for(
        lambda: threading.active_count() >= before + AT_ONCE, 30, "a thread for each of the first"
    )
    assert threading.active_count() == before + AT_ONCE
    for connection in idle:
        connection.close()
    assert seen(page) == "<p>seen</p>"


def test_page_can_be_served_repeatedly(page: ServedPage) -> None:
    assert [seen(page) for _ in range(3 * AT_ONCE)] == ["<p>seen</p>"] * 3 * AT_ONCE
