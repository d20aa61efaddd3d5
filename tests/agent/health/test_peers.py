"""Test the signs of life that other hosts send, and what happens if a host answers slowly or
wrongly.
"""

from __future__ import annotations

import contextlib
import io
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from support.agent.cluster import NewCluster
from support.stopwatch import Stopwatch
from tfdeploy.agent import wire
from tfdeploy.agent.broadcast import keep_transfer
from tfdeploy.agent.health import peers, reach
from tfdeploy.agent.health.activity import LifeSigns
from tfdeploy.agent.health.diagnose import OPEN
from tfdeploy.agent.host import parallel
from tfdeploy.agent.host.network import sockets
from tfdeploy.agent.mesh import listener as mesh_listener
from tfdeploy.agent.mesh import tls
from tfdeploy.agent.mesh.mesh import Mesh
from tfdeploy.agent.mesh.shared_state import KnownRunState

NAMES = ["n1", "n2", "n3"]
# No field has its default value. So the tests notice if a field does not arrive.
SIGN = LifeSigns(
    still_s=7.0,
    waits=("worker:0",),
    waiting_s=3.0,
    stopped=11,
    disk=12,
    listens=True,
    starting=True,
)
PEERS = [
    wire.Peer(task=f"worker:{index}", role="worker", host=name) for index, name in enumerate(NAMES)
]


@contextmanager
def dribbling(listener: socket.socket, certs: Any, every_s: float) -> Iterator[None]:
    """Run a host that answers each request slowly. It sends one byte, waits `every_s` seconds,
    sends the next byte, and so on.
    """
    over = threading.Event()

    def answer() -> None:
        plain, _ = listener.accept()
        with (
            contextlib.suppress(OSError),
            tls.make_contexts(certs)[0].wrap_socket(plain, server_side=True) as channel,
        ):
            mesh_listener.receive_message(channel)
            while not over.wait(every_s):
                channel.sendall(b" ")
        listener.close()

    listener.listen()
    thread = threading.Thread(daemon=True, target=answer)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(120)


@pytest.mark.parametrize("every_s", [0.2, 0.001])
def test_a_host_that_answers_byte_by_byte_keeps_nobody_from_the_others_signs(
    hosts: NewCluster, monkeypatch: pytest.MonkeyPatch, every_s: float
) -> None:
    monkeypatch.setattr(mesh_listener, "TIMEOUT_S", 3.0)
    cluster = hosts(*NAMES)
    part = wire.HostPart(
        run="r1", job="digits", mode="async", host="n1", plan_digest="d", release="c", peers=PEERS
    )
    part.mesh = [wire.MeshHost(name, "127.0.0.1", cluster.hosts[name].mesh_port) for name in NAMES]
    listeners = {
        name: sockets.bind_exclusively(cluster.hosts[name].mesh_port, 5.0) for name in NAMES
    }
    signs_answer = peers.SignsResponder()
    signs_answer.signs = {"worker:2": SIGN}

    def offer(host: str, question: Any, channel: ssl.SSLSocket) -> None:
        signs_answer.answer(channel)

    def member(name: str) -> Mesh:
        own = wire.from_wire(wire.HostPart, {**wire.to_wire(part), "host": name})
        return Mesh(
            own, cluster.certs[name], listeners[name], KnownRunState(), lambda: None, offer, None
        )

    told: list[peers.PeerSigns] = []
    with contextlib.closing(member("n1")) as mesh, contextlib.closing(member("n3")):
        asking = threading.Thread(
            daemon=True, target=lambda: told.append(peers.ask_for_signs(mesh, part, ["n2", "n3"]))
        )
        with dribbling(listeners["n2"], cluster.certs["n2"], every_s):
            asking.start()
            cluster.wait_until(lambda: told, 15.0, "all have answered, or had the time for it")
        asking.join(120)
    assert told == [peers.PeerSigns({"worker:2": SIGN}, {"n2": reach.NO_ANSWER, "n3": OPEN})]


def test_the_sign_that_is_sent_here_has_no_default() -> None:
    """Test that each field of SIGN has another value than its default.

    If the check of a peer does not know a field of LifeSigns, the peer drops this field, and the
    field gets its default value. The tests notice this only if the value that was sent is not the
    default.
    """
    assert [
        name for name in LifeSigns._fields if getattr(SIGN, name) == getattr(LifeSigns(), name)
    ] == []


def test_who_does_not_end_is_waited_for_once_and_not_one_after_the_other() -> None:
    over, watch = threading.Event(), Stopwatch()
    parallel.call_for_each(lambda _: over.wait(20), range(10), 0.3)
    assert watch.seconds < 2.0
    over.set()


def test_a_line_of_any_length_comes_whole_and_leaves_the_patience_as_it_was(
    hosts: NewCluster,
) -> None:
    cluster = hosts("n1", "n2")
    listing = (
        json.dumps({"files": [["ckpt/model", number, 0] for number in range(20000)]}).encode()
        + b"\n"
    )
    ours, theirs = socket.socketpair()

    def give() -> None:
        with tls.make_contexts(cluster.certs["n2"])[0].wrap_socket(
            theirs, server_side=True
        ) as channel:
            channel.sendall(listing + b"contents")

    giving = threading.Thread(daemon=True, target=give)
    giving.start()
    with tls.make_contexts(cluster.certs["n1"])[1].wrap_socket(ours) as channel:
        channel.settimeout(keep_transfer.OPERATION_TIMEOUT_S)
        assert tls.read_line(channel, keep_transfer.MOST_LINE_BYTES, 20.0, 1) == listing
        assert (
            channel.recv(8) == b"contents"
            and channel.gettimeout() == keep_transfer.OPERATION_TIMEOUT_S
        )
    giving.join(120)


def test_a_listing_is_read_in_large_blocks() -> None:
    """Reading a listing of 64 MiB one byte at a time would use a core for a minute."""
    reads: list[int] = []
    listing = b"x" * (1 << 20) + b"\n"

    arriving = io.BytesIO(listing)

    def recv(count: int) -> bytes:
        reads.append(count)
        return arriving.read(count)

    channel: Any = SimpleNamespace(
        gettimeout=lambda: 5.0, settimeout=lambda seconds: None, pending=lambda: 1, recv=recv
    )
    assert tls.read_line(channel, keep_transfer.MOST_LINE_BYTES, 20.0) == listing
    assert len(reads) < 100
