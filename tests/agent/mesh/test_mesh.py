"""Minders speak with minders of their run and with nobody else."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from support.waiting import wait_for
from tfdeploy.agent import wire
from tfdeploy.agent.host import sockets
from tfdeploy.agent.mesh import handshake_gate, tls
from tfdeploy.agent.mesh import listener as mesh_listener
from tfdeploy.agent.mesh.mesh import Mesh
from tfdeploy.agent.mesh.shared_state import Knowledge

NAMES = ["n1", "n2", "n3"]


@pytest.fixture
def three(hosts: Any) -> Any:
    """Meshes of three hosts, with what makes more of them."""
    cluster = hosts(*NAMES, "stranger")
    made: dict[str, Mesh] = {}
    addresses = [wire.MeshHost(name, "127.0.0.1", cluster.hosts[name].mesh_port) for name in NAMES]
    peers = [wire.Peer(f"worker:{index}", "worker", name, index == 0) for index, name in enumerate(NAMES)]

    def join(name: str, known: Knowledge = Knowledge()) -> Mesh:  # noqa: B008
        part = wire.HostPart("r1", "digits", "async", name, "d", "c", peers=peers, mesh=addresses)
        listener = sockets.claim(cluster.hosts[name].mesh_port, 5.0)
        made[name] = Mesh(part, cluster.certs[name], listener, known, lambda: None)
        return made[name]

    cluster.join = join
    yield cluster
    for one in made.values():
        one.close()


def ended(task: str) -> Knowledge:
    return Knowledge(ended={task: {"outcome": "stopped", "time": 1.0}})


def test_news_reach_everybody_and_are_acknowledged(three: Any) -> None:
    all_of = [three.join(name) for name in NAMES]
    all_of[0].tell(Knowledge(committed=True))
    three.wait_until(lambda: all(one.known().committed for one in all_of), 5.0)
    three.wait_until(lambda: all(one.all_heard() for one in all_of), 5.0)


def test_a_peer_that_comes_late_hears_it_from_whoever_is_left(three: Any) -> None:
    first, second = three.join("n1"), three.join("n2")
    first.tell(ended("worker:0"))
    three.wait_until(lambda: second.known().ended, 5.0)
    first.close()
    late = three.join("n3")
    three.wait_until(lambda: "worker:0" in late.known().ended, 10.0)


@contextmanager
def channel_to(cluster: Any, certs: Any) -> Iterator[ssl.SSLSocket]:
    """A connection to the mesh of host n1."""
    plain = socket.create_connection(("127.0.0.1", cluster.hosts["n1"].mesh_port), timeout=10)
    with plain, tls.contexts(certs)[1].wrap_socket(plain) as channel:
        yield channel


def speak(cluster: Any, certs: Any, line: bytes) -> bytes:
    """What host n1 answers to one line; b"" where it hangs up."""
    try:
        with channel_to(cluster, certs) as channel:
            channel.sendall(line)
            return channel.recv(65536)
    except OSError:  # in the handshake, or only afterwards: TLS 1.3 refuses late
        return b""


def message(known: Any, run: str = "r1", host: str = "n2") -> bytes:
    return json.dumps({"v": 1, "run": run, "from": host, "known": known}).encode() + b"\n"


def test_only_members_with_sense_are_answered(three: Any, hosts: Any) -> None:
    one = three.join("n1")
    good = Knowledge(committed=True).as_json()
    certs = three.certs
    for line in (b"hello\n", b"[]\n", message(good, run="r2"), message(good, host="n3"), message({"ended": []}), message(None)):
        assert speak(three, certs["n2"], line) == b""
    assert not one.known().committed
    assert json.loads(speak(three, certs["n2"], message(good)))["from"] == "n1"
    assert one.known().committed


@pytest.mark.fault("59 a host of the run that says nonsense over the mesh")
def test_a_member_that_lies_stops_no_thread_and_no_word(three: Any, capfd: pytest.CaptureFixture[str]) -> None:
    one = three.join("n1")
    certs = three.certs
    deep = b'{"v":1,"run":"r1","from":"n2","known":' + b"[" * 100000 + b"]" * 100000 + b"}\n"
    infinite = message({"decided": float("nan")}), message({"abort": {"kind": "abort", "time": 1.0}})
    for line in (deep, *infinite, b"[" * 1000000 + b"\n"):
        assert speak(three, certs["n2"], line) == b""
    three.wait_until(lambda: not one._door._open, 5.0)
    assert one.known() == Knowledge() and "Traceback" not in capfd.readouterr().err
    assert speak(three, certs["n2"], message(Knowledge(committed=True).as_json()))


def test_a_certificate_of_another_run_or_of_no_host_is_refused(three: Any, tmp_path: Any, agent_dir: str) -> None:
    one = three.join("n1")
    good = Knowledge(committed=True).as_json()
    assert speak(three, three.certs["stranger"], message(good, host="stranger")) == b""
    other_run = type(three)(tmp_path / "other", agent_dir, ["n2"]).certs["n2"]
    mixed = dict(other_run, ca=three.certs["n1"]["ca"])  # it trusts us, we do not trust it
    assert speak(three, mixed, message(good)) == b""
    assert not one.known().committed


def test_who_goes_says_so_to_those_where_nothing_runs_any_more(three: Any) -> None:
    one, other = three.join("n1", ended("worker:2")), three.join("n3")
    one.tell(ended("worker:0"))  # as far as n1 knows, nobody of n3 needs to hear it
    one.say_farewell()
    assert "worker:0" in other.known().ended


@pytest.mark.fault("57 garbage and silence between the minders")
def test_garbage_and_silence_do_not_stop_it(three: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mesh_listener, "TIMEOUT_S", 0.5)
    one, two = three.join("n1"), three.join("n2")
    port = three.hosts["n1"].mesh_port
    silent = [socket.create_connection(("127.0.0.1", port), timeout=10) for _ in range(mesh_listener.MAX_STRANGERS + 10)]
    for index, plain in enumerate(silent):
        if index % 2:
            try:
                plain.sendall(b"\x16\x03\x01" + b"x" * 1000)
            except OSError:
                pass
    two.tell(Knowledge(committed=True))
    three.wait_until(lambda: one.known().committed, 15.0)
    for plain in silent:
        plain.close()


def test_strangers_hang_up_no_member(three: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake_gate, "MOST_WAITING", 32)
    one = three.join("n1")
    with channel_to(three, three.certs["n2"]) as guest:  # a checkpoint may be on its way there for minutes
        three.wait_until(lambda: one._door._guests, 5.0)
        strangers = [
            socket.create_connection(("127.0.0.1", three.hosts["n1"].mesh_port)) for _ in range(handshake_gate.MOST_WAITING + 1)
        ]
        assert strangers[0].recv(1) == b""
        guest.sendall(message(Knowledge(committed=True).as_json()))
        assert guest.recv(65536)
        for plain in strangers:
            plain.close()


def test_one_member_has_a_bounded_number_of_connections(three: Any) -> None:
    one = three.join("n1")
    certs = three.certs["n2"]
    with contextlib.ExitStack() as stack:
        for _ in range(mesh_listener.MOST_OF_ONE):
            stack.enter_context(channel_to(three, certs))
        three.wait_until(lambda: len(one._door._guests) == mesh_listener.MOST_OF_ONE, 10.0)
        assert speak(three, certs, message(Knowledge().as_json())) == b""
        assert speak(three, three.certs["n3"], message(Knowledge().as_json(), host="n3"))
    three.wait_until(lambda: speak(three, certs, message(Knowledge().as_json())), 10.0)


class Flood:
    """A stranger's TLS handshakes at host n1, as fast as `a_second` allows, each with a certificate of another run."""

    def __init__(self, cluster: Any, certs: Any, a_second: int) -> None:
        self.begun = 0
        self._over = threading.Event()
        self._context, self._where = tls.contexts(certs)[1], ("127.0.0.1", cluster.hosts["n1"].mesh_port)
        self._threads = [threading.Thread(target=self._knock, args=(4 / a_second,)) for _ in range(4)]

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
                with socket.create_connection(self._where, timeout=2) as plain, self._context.wrap_socket(plain) as channel:
                    channel.recv(1)
            except OSError:
                pass


@pytest.mark.fault("59 a stranger's handshakes by the hundred")
def test_a_crowd_of_strangers_costs_few_handshakes_and_holds_up_no_word(three: Any, tmp_path: Any, agent_dir: str) -> None:
    one, two = three.join("n1"), three.join("n2")
    stranger = type(three)(tmp_path / "other", agent_dir, ["n2"]).certs["n2"]
    begun, handshakes, wrap = time.monotonic(), [], one._door._context.wrap_socket
    one._door._context.wrap_socket = lambda *args, **more: handshakes.append(1) or wrap(*args, **more)
    with Flood(three, stranger, 500) as flood:
        three.wait_until(lambda: flood.begun > 200, 20.0)
        two.tell(Knowledge(committed=True))
        three.wait_until(lambda: one.known().committed, 15.0)
    a_second, most = handshake_gate.STRANGERS
    assert handshakes and len(handshakes) <= most + a_second * (time.monotonic() - begun) + 10, (len(handshakes), flood.begun)


def test_strangers_that_speak_byte_by_byte_do_not_keep_it_busy() -> None:
    looks: list[float] = []
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        one = handshake_gate.Gate(listener, "wanted", lambda plain: plain.close())
        stack.callback(one.close)
        look = one._look
        one._look = lambda: (look(), looks.append(time.monotonic()))  # type: ignore[assignment, func-returns-value]
        strangers = [stack.enter_context(socket.create_connection(listener.getsockname())) for _ in range(50)]
        for each in strangers:
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            each.sendall(b"\x16\x03\x01\x40\x00")
        wait_for(lambda: len(one._waiting) == 50, 10.0, "all are waited for")
        looks.clear()
        begun = time.monotonic()
        for _ in range(1000):  # less than is looked at of a first message
            for each in strangers:
                each.sendall(b"\x00")
        assert looks and len(looks) <= (time.monotonic() - begun) / handshake_gate._PAUSE_S + 2


def test_a_word_to_this_host_alone_lets_a_member_through(three: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake_gate, "STRANGERS", (0.0, 0.0))
    one, two = three.join("n1"), three.join("n2")
    assert handshake_gate.token("ca", "n1") != handshake_gate.token("ca", "n2") != handshake_gate.token("other", "n2")
    assert speak(three, three.certs["n2"], message(Knowledge().as_json())) == b""  # no token
    two.tell(Knowledge(committed=True))
    three.wait_until(lambda: one.known().committed, 10.0)


def test_who_takes_over_takes_nobody_for_silent_before_it_listened(three: Any) -> None:
    one, now = three.join("n1"), time.monotonic()
    assert all(silent <= 60 for silent in one.silent_s(now, now - 100.0).values())


def test_an_endless_message_is_cut(three: Any) -> None:
    three.join("n1")
    begun = time.monotonic()
    with channel_to(three, three.certs["n2"]) as channel, pytest.raises(OSError):
        while time.monotonic() < begun + 20:
            channel.sendall(b"x" * 65536)


def test_threads_do_not_pile_up(three: Any) -> None:
    before = threading.active_count()
    one = three.join("n1")  # its peers are not there
    one.tell(Knowledge(committed=True))
    three.wait_until(lambda: one._peers["n2"].failures >= 3, 10.0)
    assert threading.active_count() <= before + 2 + 2
    assert not one.all_heard()


def test_who_left_before_it_was_told_is_not_waited_for(three: Any) -> None:
    one, two = three.join("n1"), three.join("n2")
    one.tell(Knowledge(committed=True))
    three.wait_until(lambda: two.known().committed, 5.0)
    two.close()
    one.tell(ended("worker:0"))  # n2 and n3 have tasks as far as n1 knows, and nobody listens there
    assert not one.all_heard()
    three.wait_until(one.all_heard, 20.0)


def test_no_thread_for_a_moment_makes_it_neither_deaf_nor_mute(three: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = three.join("n1"), three.join("n2")
    begin, refused = threading.Thread.start, []

    def start(thread: threading.Thread) -> None:
        target = thread._target.__name__  # type: ignore[attr-defined]
        if target in ("_speak", "_listen_to") and refused.count(target) < 2:
            refused.append(target)
            raise RuntimeError("can't start new thread")
        begin(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    one.tell(Knowledge(committed=True))
    three.wait_until(lambda: len(refused) == 4 and two.known().committed, 20.0)


def test_who_does_not_take_all_that_it_hears_is_not_told_again_at_once(three: Any) -> None:
    one, two = three.join("n1"), three.join("n2")
    join = two._join
    two._join = lambda other: join(other._replace(decided=None))  # as an older version does
    one.tell(Knowledge(committed=True, decided=1.0))
    three.wait_until(lambda: one._peers["n2"].heard and one._peers["n2"].not_before > time.monotonic() + 1.0, 10.0)
    assert two.known() == Knowledge(committed=True)


def test_a_host_that_refuses_is_told_from_one_that_is_silent(three: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mesh_listener, "TIMEOUT_S", 0.1)
    one = three.join("n1")
    with sockets.claim(three.hosts["n2"].mesh_port) as silent:
        silent.listen()
        one.tell(Knowledge(committed=True))
        three.wait_until(lambda: one._peers["n2"].failures >= 2, 20.0)
        assert "n2" not in one.refused_s()
    three.wait_until(lambda: one.refused_s().get("n2", 0.0) > 0.1, 20.0)
    two = three.join("n2")
    three.wait_until(lambda: two.known().committed and "n2" not in one.refused_s(), 20.0)


WITHOUT_IMPORTS = """
import builtins, encodings, json, socket, sys, time
sys.path.insert(0, sys.argv[1])
from tfdeploy.agent import wire
from tfdeploy.agent.host import sockets
from tfdeploy.agent.mesh.shared_state import Knowledge
from tfdeploy.agent.mesh.mesh import Mesh

certs, ports = json.load(sys.stdin)
mesh = [wire.MeshHost(name, "127.0.0.1", port) for name, port in ports.items()]
peers = [wire.Peer("worker:%d" % n, "worker", name) for n, name in enumerate(ports)]
one, two = [
    Mesh(wire.HostPart("r1", "j", "async", name, "d", "c", peers=peers, mesh=mesh), certs[name], sockets.claim(ports[name]),
         Knowledge(), lambda: None)
    for name in ports
]

def refuse(name, globals=None, locals=None, fromlist=(), level=0):
    if level == 0 and name not in sys.modules:
        raise MemoryError(name)
    return imported(name, globals, locals, fromlist, level)

imported, builtins.__import__ = builtins.__import__, refuse
one.tell(Knowledge(committed=True))
until = time.monotonic() + 20
while not two.known().committed and time.monotonic() < until:
    time.sleep(0.02)
print(two.known().committed)
"""


def test_once_it_listens_it_speaks_without_importing_anything(three: Any, agent_dir: str) -> None:
    """What cannot be imported for want of memory is never tried again: "unknown encoding: idna"."""
    ports = {name: three.hosts[name].mesh_port for name in ("n1", "n2")}
    given = json.dumps([three.certs, ports])
    command = [sys.executable, "-S", "-E", "-c", WITHOUT_IMPORTS, agent_dir]
    said = subprocess.run(command, input=given, capture_output=True, text=True, timeout=60, check=True)
    assert said.stdout.split() == ["True"], said.stderr


@pytest.mark.parametrize("where", ["speaking", "answering", "taking in", "a word"])
def test_no_exception_ends_a_conversation_for_good(three: Any, monkeypatch: pytest.MonkeyPatch, capfd: Any, where: str) -> None:
    one, two = three.join("n1"), three.join("n2")
    target, name = {
        "speaking": (one._schedule, "due"),
        "answering": (two._door, "_answer"),
        "taking in": (two._door._gate, "_accept"),
        "a word": (one, "_message"),
    }[where]
    usual, failed = getattr(target, name), []

    def fail(*given: Any) -> Any:
        if len(failed) < 3:
            failed.append(1)
            raise MemoryError
        return usual(*given)

    monkeypatch.setattr(target, name, fail)
    one.tell(Knowledge(committed=True))
    three.wait_until(lambda: len(failed) == 3 and two.known().committed, 20.0)
    assert capfd.readouterr().err.count("Traceback") <= 1  # of each kind it is told once
