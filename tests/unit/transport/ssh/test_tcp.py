"""Test how tfdeploy connects through a network that drops the first packets."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from support.waiting import wait_for
from tfdeploy.transport.ssh import tcp

NEW = partial(socket.socket, socket.AF_INET, socket.SOCK_STREAM)


@contextmanager
def full_listener() -> Iterator[tuple[socket.socket, list[socket.socket]]]:
    """Yield a listener whose accept queue is full, and the sockets that fill the queue.

    A new connection gets no answer until these sockets are closed.
    """
    with NEW() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        fillers = [NEW() for _ in range(3)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        yield listener, fillers
        for filler in fillers:
            filler.close()


def test_second_attempt_starts_while_first_is_unanswered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tcp, "TRY_AGAIN_S", 0.05)
    sockets: list[socket.socket] = []
    collected: list[socket.socket] = []

    def new() -> socket.socket:
        sockets.append(NEW())
        return sockets[-1]

    with full_listener() as (listener, fillers):
        thread = threading.Thread(
            daemon=True,
            target=lambda: collected.append(tcp._connect(new, listener.getsockname(), 30.0)),
        )
        thread.start()
        wait_for(lambda: len(sockets) >= 3, 10, "more tries")
        for filler in fillers:
            filler.close()

        def accepted() -> bool:
            listener.settimeout(0.1)
            try:
                listener.accept()[0].close()
            except TimeoutError:
                pass
            return bool(collected)

        wait_for(accepted, 20, "one of them is through")
        thread.join(120)
    assert [sock for sock in sockets if sock.fileno() >= 0] == collected
    assert collected[0].gettimeout() is None
    collected[0].close()


def test_unanswered_attempts_time_out_and_are_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tcp, "TRY_AGAIN_S", 0.05)
    sockets: list[socket.socket] = []

    def new() -> socket.socket:
        sockets.append(NEW())
        return sockets[-1]

    with full_listener() as (listener, _), pytest.raises(TimeoutError):
        tcp._connect(new, listener.getsockname(), 0.3)
    assert len(sockets) > 1 and all(sock.fileno() == -1 for sock in sockets)


def test_refusal_is_reported_immediately() -> None:
    with NEW() as nobody:
        nobody.bind(("127.0.0.1", 0))
        with pytest.raises(ConnectionRefusedError):
            tcp._connect(NEW, nobody.getsockname(), 30.0)
