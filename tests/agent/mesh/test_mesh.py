"""Test the mesh (the connections between the hosts of a run): what one minder knows reaches all
minders, also if a minder joins late, leaves, or cannot start threads.

A minder is the process that looks after a run on a host.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
from typing import Any

import pytest

from support.agent.interpreter import AGENT_PYTHON
from support.agent.meshes import NAMES, Meshes, ended
from tfdeploy.agent.host.network import sockets
from tfdeploy.agent.mesh import listener as mesh_listener
from tfdeploy.agent.mesh.shared_state import KnownRunState


def test_news_reach_everybody_and_are_acknowledged(three: Meshes) -> None:
    all_of = [three.join(name) for name in NAMES]
    all_of[0].join_and_send(KnownRunState(committed=True))
    three.wait_until(lambda: all(one.current_state().committed for one in all_of), 5.0)
    three.wait_until(lambda: all(one.have_peers_same_state() for one in all_of), 5.0)


def test_a_peer_that_comes_late_hears_it_from_whoever_is_left(three: Meshes) -> None:
    first, second = three.join("n1"), three.join("n2")
    first.join_and_send(ended("worker:0"))
    three.wait_until(lambda: second.current_state().ended, 5.0)
    first.close()
    late = three.join("n3")
    three.wait_until(lambda: "worker:0" in late.current_state().ended, 10.0)


def test_who_goes_says_so_to_those_where_nothing_runs_any_more(three: Meshes) -> None:
    one, other = three.join("n1", ended("worker:2")), three.join("n3")
    # As far as n1 knows, no task of n3 is alive any more.
    one.join_and_send(ended("worker:0"))
    one.send_last_update()
    assert "worker:0" in other.current_state().ended


def test_who_takes_over_takes_nobody_for_silent_before_it_listened(three: Meshes) -> None:
    one, now = three.join("n1"), time.monotonic()
    assert all(silent <= 60 for silent in one.silence_s_by_host(now, now - 100.0).values())


def test_threads_do_not_pile_up(three: Meshes) -> None:
    before = threading.active_count()
    # No other host has joined the mesh, so n1 reaches nobody.
    one = three.join("n1")
    one.join_and_send(KnownRunState(committed=True))
    three.wait_until(lambda: one._peers["n2"].failures >= 3, 10.0)
    assert threading.active_count() <= before + 2 + 2
    assert not one.have_peers_same_state()


def test_who_left_before_it_was_told_is_not_waited_for(three: Meshes) -> None:
    one, two = three.join("n1"), three.join("n2")
    one.join_and_send(KnownRunState(committed=True))
    three.wait_until(lambda: two.current_state().committed, 5.0)
    two.close()
    # As far as n1 knows, n2 and n3 have live tasks. But no mesh listens on these hosts.
    one.join_and_send(ended("worker:0"))
    assert not one.have_peers_same_state()
    three.wait_until(one.have_peers_same_state, 20.0)


def test_no_thread_for_a_moment_makes_it_neither_deaf_nor_mute(
    three: Meshes, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = three.join("n1"), three.join("n2")
    begin, refused = threading.Thread.start, []

    def start(thread: threading.Thread) -> None:
        target = thread._target.__name__  # type: ignore[attr-defined]
        if target in ("_try_exchange_state", "_serve_connection") and refused.count(target) < 2:
            refused.append(target)
            raise RuntimeError("can't start new thread")
        begin(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    one.join_and_send(KnownRunState(committed=True))
    three.wait_until(lambda: len(refused) == 4 and two.current_state().committed, 20.0)


def test_a_minder_that_cannot_start_a_thread_asks_what_its_peers_know(
    three: Meshes, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = three.join("n1"), three.join("n2")
    begin = threading.Thread.start

    def start(thread: threading.Thread) -> None:
        if getattr(thread, "_args", ())[:1] == (one._peers["n2"],):
            raise RuntimeError("can't start new thread")
        begin(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    monkeypatch.setattr(two, "_send_to_due_peers", lambda: threading.Event().wait(0.05))
    two.join_and_send(KnownRunState(committed=True))
    # By default, n1 exchanges states with one randomly chosen peer every 10 s.
    one.set_connect_interval(0.1)
    three.wait_until(lambda: one.current_state().committed, 20.0)


def test_who_does_not_take_all_that_it_hears_is_not_told_again_at_once(three: Meshes) -> None:
    one, two = three.join("n1"), three.join("n2")
    join = two.join_and_send
    # n2 imitates an older version, which does not know the field `decided`.
    two.join_and_send = lambda other: join(other._replace(decided=None))
    one.join_and_send(KnownRunState(committed=True, decided=1.0))
    three.wait_until(
        lambda: (
            one._peers["n2"].last_message and one._peers["n2"].not_before > time.monotonic() + 1.0
        ),
        10.0,
    )
    assert two.current_state() == KnownRunState(committed=True)


def test_a_host_that_refuses_is_told_from_one_that_is_silent(
    three: Meshes, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = three.join("n1")
    with (
        sockets.bind_exclusively(three.hosts["n2"].mesh_port) as silent,
        monkeypatch.context() as patch,
    ):
        patch.setattr(mesh_listener, "TIMEOUT_S", 0.1)
        silent.listen()
        one.join_and_send(KnownRunState(committed=True))
        three.wait_until(lambda: one._peers["n2"].failures >= 2, 20.0)
        assert "n2" not in one.refusal_s_by_host()
    three.wait_until(lambda: one.refusal_s_by_host().get("n2", 0.0) > 0.1, 20.0)
    two = three.join("n2")
    three.wait_until(
        lambda: two.current_state().committed and "n2" not in one.refusal_s_by_host(), 20.0
    )


WITHOUT_IMPORTS = """
import builtins, encodings, json, socket, sys, time
sys.path.insert(0, sys.argv[1])
from tfdeploy.agent import wire
from tfdeploy.agent.host.network import sockets
from tfdeploy.agent.mesh.shared_state import KnownRunState
from tfdeploy.agent.mesh.mesh import Mesh

certs, ports = json.load(sys.stdin)
mesh = [wire.MeshHost(name, "127.0.0.1", port) for name, port in ports.items()]
peers = [wire.Peer("worker:%d" % n, "worker", name) for n, name in enumerate(ports)]
one, two = [
    Mesh(
        wire.HostPart("r1", "j", "async", name, "d", "c", peers=peers, mesh=mesh),
        certs[name],
        sockets.bind_exclusively(ports[name]),
        KnownRunState(),
        lambda: None,
        lambda *asked: None,
        None,
    )
    for name in ports
]

def refuse(name, globals=None, locals=None, fromlist=(), level=0):
    if level == 0 and name not in sys.modules:
        raise MemoryError(name)
    return imported(name, globals, locals, fromlist, level)

imported, builtins.__import__ = builtins.__import__, refuse
one.join_and_send(KnownRunState(committed=True))
until = time.monotonic() + 60
while not two.current_state().committed and time.monotonic() < until:
    time.sleep(0.02)
print(two.current_state().committed)
"""


def test_once_it_listens_it_speaks_without_importing_anything(
    three: Meshes, agent_dir: str
) -> None:
    """A mesh must not need an import after its start. If the import of a codec fails a single time,
    for lack of memory, Python reports "unknown encoding: idna" from then on.
    """
    ports = {name: three.hosts[name].mesh_port for name in ("n1", "n2")}
    given = json.dumps([three.certs, ports])
    command = [AGENT_PYTHON, "-S", "-E", "-c", WITHOUT_IMPORTS, agent_dir]
    said = subprocess.run(
        command, input=given, capture_output=True, text=True, timeout=300, check=True
    )
    assert said.stdout.split() == ["True"], said.stderr


@pytest.mark.parametrize("where", ["speaking", "answering", "taking in", "a word"])
def test_no_exception_ends_a_conversation_for_good(
    three: Meshes, monkeypatch: pytest.MonkeyPatch, capfd: Any, where: str
) -> None:
    one, two = three.join("n1"), three.join("n2")
    target, name = {
        "speaking": (one._schedule, "choose_due_peers"),
        "answering": (two._listener, "_answer"),
        "taking in": (two._listener._gate, "_accept_connections"),
        "a word": (one, "_encode_state_message"),
    }[where]
    usual, failed = getattr(target, name), []

    def fail(*given: Any) -> Any:
        if len(failed) < 3:
            failed.append(1)
            raise MemoryError
        return usual(*given)

    monkeypatch.setattr(target, name, fail)
    one.join_and_send(KnownRunState(committed=True))
    three.wait_until(lambda: len(failed) == 3 and two.current_state().committed, 20.0)
    # The same kind of error is reported only once.
    assert capfd.readouterr().err.count("Traceback") <= 1
