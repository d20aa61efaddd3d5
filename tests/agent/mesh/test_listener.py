"""Test the mesh (connections between the hosts of a run): a host accepts only valid messages from
members of its run, however many strangers connect.
"""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from support.agent.certificates import make_certs
from support.agent.cluster import NewCluster
from support.agent.meshes import Meshes
from support.stopwatch import DEADLINE_S
from support.waiting import wait_for
from tfdeploy.agent import peer_filter
from tfdeploy.agent.host.network.guarded_ports import GuardedPorts
from tfdeploy.agent.mesh import handshake_gate, tls
from tfdeploy.agent.mesh import listener as mesh_listener
from tfdeploy.agent.mesh.shared_state import KnownRunState


@contextmanager
def channel_to(
    meshes: Meshes, certs: dict[str, str], token: str | None = None
) -> Iterator[ssl.SSLSocket]:
    """Yield a connection to the mesh of host n1."""
    plain = socket.create_connection(("127.0.0.1", meshes.hosts["n1"].mesh_port), timeout=10)
    with plain, tls.make_contexts(certs)[1].wrap_socket(plain, server_hostname=token) as channel:
        yield channel


def speak(meshes: Meshes, certs: dict[str, str], line: bytes, token: str | None = None) -> bytes:
    """Send one line to host n1. Return the answer, or b"" if n1 closes the connection."""
    try:
        with channel_to(meshes, certs, token) as channel:
            channel.sendall(line)
            return channel.recv(65536)
    # With TLS 1.3, a refusal may arrive only after the handshake.
    except OSError:
        return b""


def message(known: Any, run: str = "r1", host: str = "n2", **more: Any) -> bytes:
    return json.dumps({"v": 1, "run": run, "from": host, "known": known, **more}).encode() + b"\n"


def test_only_members_with_sense_are_answered(three: Meshes, hosts: NewCluster) -> None:
    one = three.join("n1")
    good = KnownRunState(committed=True).as_json()
    certs = three.certs
    for line in (
        b"hello\n",
        b"[]\n",
        message(good, run="r2"),
        message(good, host="n3"),
        message({"ended": []}),
        message(None),
    ):
        assert speak(three, certs["n2"], line) == b""
    assert not one.current_state().committed
    assert json.loads(speak(three, certs["n2"], message(good)))["from"] == "n1"
    assert one.current_state().committed


@pytest.mark.fault("59 a host of the run that says nonsense over the mesh")
def test_a_member_that_lies_stops_no_thread_and_no_word(
    three: Meshes, capfd: pytest.CaptureFixture[str]
) -> None:
    one = three.join("n1")
    certs = three.certs
    deep = b'{"v":1,"run":"r1","from":"n2","known":' + b"[" * 100000 + b"]" * 100000 + b"}\n"
    infinite = (
        message({"decided": float("nan")}),
        message({"abort": {"kind": "abort", "time": 1.0}}),
    )
    for line in (deep, *infinite, b"[" * 1000000 + b"\n"):
        assert speak(three, certs["n2"], line) == b""
    three.wait_until(lambda: not one._listener._open, 5.0)
    assert one.current_state() == KnownRunState() and "Traceback" not in capfd.readouterr().err
    assert speak(three, certs["n2"], message(KnownRunState(committed=True).as_json()))


def test_a_certificate_of_another_run_or_of_no_host_is_refused(three: Meshes) -> None:
    one = three.join("n1")
    good = KnownRunState(committed=True).as_json()
    assert speak(three, three.certs["stranger"], message(good, host="stranger")) == b""
    other_run = make_certs(["n2"])["n2"]
    # The peer trusts n1, but n1 does not trust the certificate of the peer.
    mixed = dict(other_run, ca=three.certs["n1"]["ca"])
    assert speak(three, mixed, message(good)) == b""
    assert not one.current_state().committed


@pytest.mark.fault("57 garbage and silence between the minders")
def test_garbage_and_silence_do_not_stop_it(three: Meshes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mesh_listener, "TIMEOUT_S", 1.5)
    one, two = three.join("n1"), three.join("n2")
    port = three.hosts["n1"].mesh_port
    silent = [
        socket.create_connection(("127.0.0.1", port), timeout=10)
        for _ in range(mesh_listener.MAX_STRANGERS + 10)
    ]
    for index, plain in enumerate(silent):
        if index % 2:
            try:
                plain.sendall(b"\x16\x03\x01" + b"x" * 1000)
            except OSError:
                pass
    two.join_and_send(KnownRunState(committed=True))
    three.wait_until(lambda: one.current_state().committed, 15.0)
    for plain in silent:
        plain.close()


def test_strangers_hang_up_no_member(three: Meshes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake_gate, "MOST_WAITING", 32)
    one = three.join("n1")
    # A connection of a member may last minutes, for example while it transfers a checkpoint.
    with channel_to(three, three.certs["n2"]) as guest:
        three.wait_until(lambda: one._listener._of_members, 5.0)
        strangers = [
            socket.create_connection(("127.0.0.1", three.hosts["n1"].mesh_port))
            for _ in range(handshake_gate.MOST_WAITING + 1)
        ]
        assert strangers[0].recv(1) == b""
        guest.sendall(message(KnownRunState(committed=True).as_json()))
        assert guest.recv(65536)
        for plain in strangers:
            plain.close()


def test_one_member_has_a_bounded_number_of_connections(three: Meshes) -> None:
    one = three.join("n1")
    certs = three.certs["n2"]
    with contextlib.ExitStack() as stack:
        for _ in range(mesh_listener.MAX_PER_MEMBER):
            stack.enter_context(channel_to(three, certs))
        three.wait_until(
            lambda: len(one._listener._of_members) == mesh_listener.MAX_PER_MEMBER, 10.0
        )
        assert speak(three, certs, message(KnownRunState().as_json())) == b""
        assert speak(three, three.certs["n3"], message(KnownRunState().as_json(), host="n3"))
    three.wait_until(lambda: speak(three, certs, message(KnownRunState().as_json())), 10.0)


class Flood:
    """A stranger that begins TLS handshakes with host n1, at most `a_second` in a second. Each
    handshake uses a certificate of another run.
    """

    def __init__(self, meshes: Meshes, certs: dict[str, str], a_second: int) -> None:
        self.begun = 0
        self._over = threading.Event()
        self._context, self._where = (
            tls.make_contexts(certs)[1],
            ("127.0.0.1", meshes.hosts["n1"].mesh_port),
        )
        self._threads = [
            threading.Thread(daemon=True, target=self._knock, args=(4 / a_second,))
            for _ in range(4)
        ]

    def __enter__(self) -> Flood:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _knock(self, pause_s: float) -> None:
        while not self._over.wait(pause_s):
            self.begun += 1
            try:
                with (
                    socket.create_connection(self._where, timeout=2) as plain,
                    self._context.wrap_socket(plain) as channel,
                ):
                    channel.recv(1)
            except OSError:
                pass


@pytest.mark.fault("59 a stranger's handshakes by the hundred")
def test_a_crowd_of_strangers_costs_few_handshakes_and_holds_up_no_word(three: Meshes) -> None:
    one, two = three.join("n1"), three.join("n2")
    stranger = make_certs(["n2"])["n2"]
    begun, handshakes, wrap = time.monotonic(), [], one._listener._context.wrap_socket
    one._listener._context.wrap_socket = lambda *args, **more: (
        handshakes.append(1) or wrap(*args, **more)
    )
    with Flood(three, stranger, 500) as flood:
        three.wait_until(lambda: flood.begun > 200, 20.0)
        two.join_and_send(KnownRunState(committed=True))
        three.wait_until(lambda: one.current_state().committed, 15.0)
    a_second, most = handshake_gate.STRANGERS
    assert handshakes and len(handshakes) <= most + a_second * (time.monotonic() - begun) + 10, (
        len(handshakes),
        flood.begun,
    )


def test_strangers_that_speak_byte_by_byte_do_not_keep_it_busy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The default timeout of 5 s is too short: on a busy machine, the strangers need longer to send
    # their bytes.
    monkeypatch.setattr(handshake_gate, "HELLO_TIMEOUT_S", DEADLINE_S)
    looks: list[float] = []
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        one = handshake_gate.HandshakeGate(
            listener, "wanted", lambda plain: plain.close(), lambda address: True
        )
        stack.callback(one.close)
        look = one._handle_poll_events
        one._handle_poll_events = lambda: (look(), looks.append(time.monotonic()))  # type: ignore[assignment, func-returns-value]
        strangers = [
            stack.enter_context(socket.create_connection(listener.getsockname())) for _ in range(50)
        ]
        for each in strangers:
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            each.sendall(b"\x16\x03\x01\x40\x00")
        wait_for(lambda: len(one._waiting) == 50, 10.0, "all are waited for")
        looks.clear()
        begun = time.monotonic()
        # Each stranger has announced a first message of 16,384 bytes. It sends only 1,000 of these
        # bytes, so the message stays incomplete.
        for _ in range(1000):
            for each in strangers:
                each.sendall(b"\x00")
        assert looks and len(looks) <= (time.monotonic() - begun) / handshake_gate._PAUSE_S + 2


def test_a_word_to_this_host_alone_lets_a_member_through(
    three: Meshes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshake_gate, "STRANGERS", (0.0, 0.0))
    one, two = three.join("n1"), three.join("n2")
    assert (
        handshake_gate.server_name_token("ca", "n1")
        != handshake_gate.server_name_token("ca", "n2")
        != handshake_gate.server_name_token("other", "n2")
    )
    # A client without the run's token is a stranger. STRANGERS admits none in this test, so the
    # message gets no answer.
    assert speak(three, three.certs["n2"], message(KnownRunState().as_json())) == b""
    two.join_and_send(KnownRunState(committed=True))
    three.wait_until(lambda: one.current_state().committed, 10.0)


@pytest.fixture
def guarded(monkeypatch: pytest.MonkeyPatch) -> GuardedPorts:
    """Return guarded ports to which only the address 127.0.0.5 may connect. Other loopback
    addresses are refused like any stranger.
    """
    monkeypatch.setattr(peer_filter, "LOOPBACK", ())
    return GuardedPorts(["127.0.0.5"], {}, {})


def tell(meshes: Meshes, line: bytes, host: str = "n2") -> bytes:
    """Call `speak` with the run's token.

    A client that has the token may connect from any address.
    """
    return speak(
        meshes,
        meshes.certs[host],
        line,
        handshake_gate.server_name_token(meshes.certs["n1"]["ca"], "n1"),
    )


@pytest.mark.fault("63 a member's connection that comes through a relay or NAT")
@pytest.mark.parametrize(
    "stated",
    [
        [],
        ["10.0.0.2", "fd00::2"],
        None,
        "127.0.0.1",
        {"127.0.0.1": 1},
        [["127.0.0.1"], 7, "x"],
        ["x"] * 64 + ["127.0.0.1"],
    ],
)
def test_an_address_that_a_member_does_not_state_is_not_let_in(
    three: Meshes, guarded: GuardedPorts, stated: Any
) -> None:
    three.join("n1", guarded=guarded)
    for _ in range(2):
        assert tell(three, message(KnownRunState().as_json(), addresses=stated))
    assert not guarded.is_admitted("127.0.0.1") and guarded.refused_ip_by_host == {
        "n2": "127.0.0.1"
    }
    asked = message(None, addresses=stated, ask={"seen_as": True})
    assert json.loads(tell(three, asked)) | {"v": 1} == {
        "v": 1,
        "run": "r1",
        "from": "n1",
        "seen": "127.0.0.1",
        "admitted": False,
    }


def test_an_address_that_a_member_states_is_let_in_and_says_whose_it_is(
    three: Meshes, guarded: GuardedPorts
) -> None:
    three.join("n1", guarded=guarded)
    assert (
        tell(
            three,
            message(KnownRunState().as_json(), host="stranger", addresses=["127.0.0.1"]),
            "stranger",
        )
        == b""
    )
    assert tell(three, message(KnownRunState().as_json(), run="r2", addresses=["127.0.0.1"])) == b""
    assert guarded.host_by_ip == {}
    assert tell(
        three, message(KnownRunState().as_json(), addresses=["10.0.0.2", "::ffff:127.0.0.1"])
    )
    assert guarded.host_by_ip == {"127.0.0.1": "n2"} and guarded.refused_ip_by_host == {}


def test_a_mesh_states_the_addresses_of_its_own_host(three: Meshes, guarded: GuardedPorts) -> None:
    one, two = three.join("n1", guarded=guarded), three.join("n2")
    two.join_and_send(KnownRunState(committed=True))
    three.wait_until(lambda: one.current_state().committed, 10.0)
    assert guarded.host_by_ip == {"127.0.0.1": "n2"}


def test_an_endless_message_is_cut(three: Meshes) -> None:
    three.join("n1")
    begun = time.monotonic()
    with channel_to(three, three.certs["n2"]) as channel, pytest.raises(OSError):
        while time.monotonic() < begun + 120:
            channel.sendall(b"x" * 65536)


def test_from_an_address_that_is_no_hosts_only_members_begin_a_handshake() -> None:
    admitted: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        where = listener.getsockname()
        gate = handshake_gate.HandshakeGate(
            listener.dup(), "mtoken", admitted.append, lambda address: False
        )
        with (
            socket.create_connection(where, timeout=10) as stranger,
            socket.create_connection(where, timeout=10) as member,
        ):
            stranger.sendall(b"\x16\x03\x01\x00\x02\x01\x00")
            try:
                assert stranger.recv(1) == b""
            except ConnectionResetError:
                pass
            member.sendall(b"\x16\x03\x01\x00\x08\x01\x00mtoken")
            wait_for(lambda: admitted, 10, "the member is admitted")
        gate.close()
    assert len(admitted) == 1
    admitted[0].close()
