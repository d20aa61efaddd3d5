"""Test how hosts check whether they can connect to each other. The tests use real sockets, and
cover all failures that can be produced on one machine.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from support.ports import free_ports
from support.stopwatch import Stopwatch
from tfdeploy.agent.call import Call, SessionContext
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.host.network import free_ports as host_ports
from tfdeploy.agent.host.network import port_probe
from tfdeploy.agent.serve import check
from tfdeploy.agent.serve import links as serve_links
from tfdeploy.agent.serve.links import PortTarget

TOKEN, KEY = "a" * 32, "b" * 32


@contextmanager
def listening(*ports: int, token: str = TOKEN, key: str = KEY) -> Iterator[dict[str, Any]]:
    """Run the verb that makes a host listen on these ports. Yield its report about the ports."""
    items_sent: list[dict[str, Any]] = []
    begun, cancelled = threading.Event(), threading.Event()

    def item(fields: Any, _: bytes) -> None:
        items_sent.append(fields)
        begun.set()

    call = Call(
        SessionContext("/nowhere", ""),
        {"ports": list(ports), "token": token, "key": key, "seconds": 30},
        b"",
        item,
        cancelled,
    )
    thread = threading.Thread(daemon=True, target=check.listen_on_ports, args=(call,))
    thread.start()
    assert begun.wait(120)
    try:
        yield items_sent[0]
    finally:
        cancelled.set()
        thread.join(120)
        assert not thread.is_alive()


def knock(*links: tuple[str, int, str]) -> dict[int, str]:
    answer = check.try_links(
        Call(SessionContext("/nowhere", ""), {"links": [list(link) for link in links]})
    )
    assert answer["asked"] == len(links)
    return {index: why for index, why, _ in answer["failed"]}


@contextmanager
def server(answer: Callable[[socket.socket], object]) -> Iterator[int]:
    """Run a server that calls `answer` for each client. Yield its port."""
    with socket.create_server(("127.0.0.1", 0)) as open_port:

        def serve() -> None:
            while True:
                try:
                    one, _ = open_port.accept()
                except OSError:
                    return
                answer(one)

        threading.Thread(target=serve, daemon=True).start()
        yield open_port.getsockname()[1]
        open_port.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_who_listens_is_reached_by_many_at_once(address: str) -> None:
    port = free_ports(1)[0]
    with listening(port) as items_sent:
        assert items_sent == {"ports": [port], "taken": {}}
        assert knock(*[(address, port, TOKEN)] * 300) == {}
    # The check leaves no connection in TIME_WAIT, so another program can bind the port at once.
    assert host_ports.is_free(port)


def test_a_port_that_is_taken_is_said_and_the_others_serve() -> None:
    port = free_ports(1)[0]
    with socket.create_server(("", 0)) as other:
        taken = other.getsockname()[1]
        with listening(taken, port) as items_sent:
            assert items_sent["ports"] == [port] and "in use" in items_sent["taken"][str(taken)]
            assert knock(("127.0.0.1", port, TOKEN)) == {}


def test_each_failure_has_its_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve_links, "CONNECT_S", 0.5)
    monkeypatch.setattr(serve_links, "ANSWER_S", 3.0)
    port, shut = free_ports(1)[0], free_ports(1)[0]
    kept: list[socket.socket] = []

    def mute(one: socket.socket) -> None:
        kept.append(one)

    def web(one: socket.socket) -> None:
        with one:
            one.sendall(b"HTTP/1.0 400 no\r\n\r\n")

    with (
        listening(port),
        server(mute) as silent,
        server(web) as other,
        server(socket.socket.close) as closing,
    ):
        links = [
            ("127.0.0.1", shut, "refused"),
            ("localhost", port, "loopback"),
            ("no-such-host.invalid", port, "unresolved"),
            ("127.0.0.1", other, "other"),
            ("127.0.0.1", closing, "other"),
            ("127.0.0.1", silent, "mute"),
        ]
        failures = knock(
            *((address, there, TOKEN) for address, there, _ in links), ("127.0.0.1", port, "c" * 32)
        )
    assert failures == {
        **{index: why for index, (_, _, why) in enumerate(links)},
        len(links): "other",
    }
    for one in kept:
        one.close()


def test_no_answer_to_a_connection_is_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server never accepts, so its queue is full and the kernel drops further packets. A client
    gets no answer, as if a firewall dropped its packets.
    """
    monkeypatch.setattr(serve_links, "CONNECT_S", 0.4)
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        waiting = []
        for _ in range(3):
            one = socket.socket()
            one.setblocking(False)
            one.connect_ex(full.getsockname())
            waiting.append(one)
        watch = Stopwatch()
        assert knock(("127.0.0.1", full.getsockname()[1], TOKEN)) == {0: "silent"}
        assert watch.seconds < 5
        for one in waiting:
            one.close()


def test_a_connection_that_is_still_open_does_not_keep_the_port_from_a_task() -> None:
    port = free_ports(1)[0]
    with listening(port):
        client = socket.create_connection(("127.0.0.1", port))
        assert client.recv(len(TOKEN)) == TOKEN.encode()
    with client, socket.socket() as task:
        # In this test, the task binds the port without SO_REUSEADDR.
        task.bind(("", port))


def test_strangers_take_no_room_from_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "_MAX_CONNECTIONS", 20)
    port = free_ports(1)[0]
    with listening(port):
        strangers = [socket.create_connection(("127.0.0.1", port)) for _ in range(60)]
        assert knock(("127.0.0.1", port, TOKEN)) == {}
        for one in strangers:
            one.close()


def test_a_measured_link_has_figures_both_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve_links, "SEND_S", 0.05)
    port = free_ports(1)[0]
    call = {"link": ["127.0.0.1", port, TOKEN], "key": KEY}
    with listening(port):
        figures = check.measure_one_link(Call(SessionContext("/nowhere", ""), call))
        assert (
            figures["why"] == ""
            and figures["ms"]
            and figures["to_mbit_s"]
            and figures["from_mbit_s"]
        )
        stranger = check.measure_one_link(
            Call(SessionContext("/nowhere", ""), {**call, "key": "c" * 32})
        )
        assert stranger["ms"] is None and stranger["why"]
        other = check.measure_one_link(
            Call(SessionContext("/nowhere", ""), {**call, "link": ["127.0.0.1", port, "c" * 32]})
        )
        assert other["why"] == "another machine answers at this port"


def test_without_the_key_nothing_is_sent_but_the_token() -> None:
    port = free_ports(1)[0]
    with listening(port), socket.create_connection(("127.0.0.1", port)) as stranger:
        stranger.settimeout(10)
        stranger.sendall(b"R" * 200)
        received = b""
        while part := _received(stranger):
            received += part
    assert received == TOKEN.encode() + b"\n"


def _received(one: socket.socket) -> bytes:
    try:
        return one.recv(4096)
    except ConnectionResetError:
        return b""


@pytest.mark.parametrize(
    "links",
    [
        [["127.0.0.1", 0, TOKEN]],
        [["127.0.0.1", 70000, TOKEN]],
        [["-oProxyCommand=x", 22, TOKEN]],
        [["a;b", 22, TOKEN]],
        [["a\nb", 22, TOKEN]],
        [["127.0.0.1", 22, "x"]],
        [["127.0.0.1", 22]],
        ["127.0.0.1"],
    ],
)
def test_what_is_no_link_is_refused(links: Any) -> None:
    with pytest.raises(VerbError):
        check.try_links(Call(SessionContext("/nowhere", ""), {"links": links}))


def test_the_limit_of_connections_at_once_is_no_limit_of_links(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(port_probe, "AT_ONCE", 7)
    port = free_ports(1)[0]
    with listening(port):
        asked = [PortTarget("127.0.0.1", port, TOKEN)] * 50
        assert serve_links.find_failing_ports(asked) == {}
