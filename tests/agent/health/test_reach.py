"""Test what a host learns when it connects to a port of another host. Test also that it finds names
of other hosts that wrongly resolve to this host, and that a host reports only on its own tasks.
"""

from __future__ import annotations

import socket
import ssl
from typing import Any

import pytest

from tfdeploy.agent import wire
from tfdeploy.agent.health import peers, reach
from tfdeploy.agent.health.activity import LifeSigns


def test_a_knock_tells_open_from_closed_and_leaves_nothing_open() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as held:
        # This port is bound, but nothing listens on it.
        held.bind(("127.0.0.1", 0))
        there, not_there = (f"127.0.0.1:{one.getsockname()[1]}" for one in (server, held))
        assert reach.try_ports([there, not_there]) == {there: "open", not_there: "closed"}
        connection, _ = server.accept()
        with connection:
            assert connection.recv(1) == b""


def test_a_full_queue_and_a_bad_name_are_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach, "CONNECT_TIMEOUT_S", 0.2)
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        address = f"127.0.0.1:{deaf.getsockname()[1]}"
        # The server never accepts this connection, so its queue is full.
        with socket.create_connection(deaf.getsockname()):
            assert reach.try_ports([address]) == {address: "no answer"}
    assert reach.try_ports(["no-such-host.invalid:2222"])["no-such-host.invalid:2222"] not in (
        "open",
        "closed",
        "no answer",
    )


def test_words_for_what_a_connection_of_our_own_ran_into() -> None:
    late = socket.timeout("x")  # noqa: UP041 - not TimeoutError before Python 3.10
    errors = [
        late,
        ConnectionRefusedError(111, "x"),
        OSError(113, "x"),
        ssl.SSLError(1, "x"),
        ValueError("x"),
    ]
    assert [reach.describe_error(error) for error in errors] == [
        "no answer",
        "closed",
        "no route to host",
        "open",
        "open",
    ]


def test_a_name_that_means_this_host() -> None:
    # The address 127.0.0.1 is not reported: the user wrote it, so no name server is at fault.
    others = ["127.0.0.1:2222", "[::1]:2222", "192.0.2.1:2222", "no-such-host.invalid:2222"]
    own_names = reach.find_loopback_names(["localhost:2222", *others])
    assert list(own_names) == ["localhost:2222"]
    assert own_names["localhost:2222"].startswith("localhost resolves to ")


ADDRESSES = ["10.0.0.1:2222", "n2.example.org:2223"]
PROXIES: dict[str, tuple[dict[str, str], str | None]] = {
    "none": ({}, None),
    "an empty one": ({"http_proxy": ""}, None),
    "one": ({"http_proxy": "http://proxy:3128"}, "http_proxy"),
    "two": ({"http_proxy": "a", "grpc_proxy": "b"}, "grpc_proxy"),
    "none of the others": ({"https_proxy": "a", "no_proxy": "10.0.0.1, .example.org"}, None),
    "some of the others": ({"https_proxy": "a", "no_proxy": "10.0.0.1"}, "https_proxy"),
    "gRPC's own list counts": (
        {"https_proxy": "a", "no_proxy": "10.0.0.1,.example.org", "no_grpc_proxy": "x"},
        "https_proxy",
    ),
}


@pytest.mark.parametrize("case", PROXIES)
def test_a_proxy_between(case: str) -> None:
    env, name = PROXIES[case]
    assert reach.find_proxy_variable(env, ADDRESSES) == name


PART = wire.HostPart(
    run="r1",
    job="j",
    mode="async",
    host="n1",
    plan_digest="d",
    release="c",
    peers=[
        wire.Peer(task="ps:0", role="ps", host="n1"),
        wire.Peer(task="worker:0", role="worker", host="n2"),
    ],
)
GOOD = LifeSigns(
    still_s=3.0, waits=("ps:0",), waiting_s=1.0, stopped=7, disk=0, listens=False, starting=False
)


def test_a_host_speaks_for_its_own_tasks_only() -> None:
    said = {
        "signs": {"worker:0": GOOD._asdict(), "ps:0": GOOD._asdict(), "worker:9": GOOD._asdict()}
    }
    assert peers._parse_signs_of_host(said, PART, "n2") == {"worker:0": GOOD}


@pytest.mark.parametrize(
    "said",
    [
        None,
        [],
        {},
        {"signs": []},
        {"signs": {"worker:0": {}}},
        {"signs": {"worker:0": {**GOOD._asdict(), "still_s": []}}},
    ],
)
def test_what_are_no_signs_is_refused(said: Any) -> None:
    with pytest.raises((ValueError, TypeError, KeyError)):
        peers._parse_signs_of_host(said, PART, "n2")
