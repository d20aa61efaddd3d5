"""Measure what strangers' TLS handshakes cost at the port over which minders exchange messages.

A minder is the process that looks after a run on a host. All processes use loopback.

    python benchmarks/handshakes.py [A_SECOND] [SECONDS]     default: 1,000 and 10

One process runs the mesh of one host: the server that receives these messages. A peer in another
process sends twenty messages to this server, while eight strangers begin handshakes. The goals are
that the server uses at most 10 % of a core, and that every message arrives within 2 s.
"""

from __future__ import annotations

import json
import os
import socket
import ssl
import sys
import threading
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from tfdeploy.agent import wire  # noqa: E402
from tfdeploy.agent.host.network import sockets  # noqa: E402
from tfdeploy.agent.mesh import tls  # noqa: E402
from tfdeploy.agent.mesh.mesh import Mesh  # noqa: E402
from tfdeploy.agent.mesh.shared_state import KnownRunState  # noqa: E402
from tfdeploy.operations.launching.certificates import make_certificates  # noqa: E402

NAMES = ["n1", "n2"]
WORDS, STRANGERS = 20, 8
MOST_A_SECOND, MOST_SECONDS = 5000, 120


def mesh_of(name: str, ports: dict[str, int], certs: dict[str, dict[str, str]]) -> Mesh:
    peers = [
        wire.Peer(task=f"worker:{n}", role="worker", host=name) for n, name in enumerate(NAMES)
    ]
    hosts = [wire.MeshHost(each, "127.0.0.1", ports[each]) for each in NAMES]
    part = wire.HostPart(
        run="r1",
        job="j",
        mode="async",
        host=name,
        plan_digest="d",
        release="c",
        peers=peers,
        mesh=hosts,
    )
    listener = sockets.bind_exclusively(ports[name])
    return Mesh(
        part, certs[name], listener, KnownRunState(), lambda: None, lambda *asked: None, None
    )


def listen(ports: dict[str, int], certs: dict[str, Any], told: int, seconds: float) -> None:
    """Run the mesh of host n1. Write the time at which each message arrived, and the CPU seconds of
    this process, to the file descriptor `told`."""
    threading.stack_size(1 << 20)
    mesh, heard, until = mesh_of("n1", ports, certs), 0, time.monotonic() + seconds
    begun = time.process_time()
    lines = []
    while time.monotonic() < until:
        number = mesh.current_state().round_number - 1
        if number > heard:
            lines.append((number, time.monotonic()))
            heard = number
        time.sleep(0.02)
    os.write(
        told, json.dumps({"heard": lines, "cpu_s": time.process_time() - begun}).encode("ascii")
    )
    os._exit(0)


def knock(where: tuple[str, int], certs: dict[str, str], a_second: float, seconds: float) -> None:
    """Act as one stranger: repeatedly send the first message of a handshake, read the answer, and
    disconnect."""
    hello = first_message(certs)
    begun, made, answered = time.monotonic(), 0, 0
    while time.monotonic() < begun + seconds:
        made += 1
        try:
            with socket.create_connection(where, timeout=0.2) as plain:
                plain.sendall(hello)
                answered += bool(plain.recv(65536))
        except OSError:
            pass
        time.sleep(max(0.0, begun + made / a_second - time.monotonic()))
    print(f"  a stranger began {made} handshakes, {answered} were answered", flush=True)
    os._exit(0)


def first_message(certs: dict[str, str]) -> bytes:
    outgoing = ssl.MemoryBIO()
    try:
        tls.make_contexts(certs)[1].wrap_bio(ssl.MemoryBIO(), outgoing).do_handshake()
    except ssl.SSLWantReadError:
        pass
    return outgoing.read()


def main(a_second: float, seconds: float) -> int:
    ports = dict(zip(NAMES, _free_ports(2), strict=True))
    certs, others = make_certificates("run", NAMES), make_certificates("another", NAMES)
    reading, writing = os.pipe()
    children = []
    for work in (
        lambda: listen(ports, certs, writing, seconds + 2),
        *[lambda: knock(("127.0.0.1", ports["n1"]), others["n2"], a_second / STRANGERS, seconds)]
        * STRANGERS
        * bool(a_second),
    ):
        pid = os.fork()
        if pid == 0:
            work()
        children.append(pid)
    time.sleep(1.0)
    said = speak(mesh_of("n2", ports, certs), seconds - 2)
    answer = json.loads(os.read(reading, 1 << 16))
    for pid in children:
        os.waitpid(pid, 0)
    heard = dict(answer["heard"])
    late = sorted(
        next((at for other, at in heard.items() if other >= number), float("inf")) - at
        for number, at in said.items()
    )
    print(
        f"{answer['cpu_s'] / (seconds + 2):.1%} of a core; words heard: median "
        f"{late[len(late) // 2]:.3f} s, last {late[-1]:.3f} s"
    )
    return 0


def speak(mesh: Mesh, seconds: float) -> dict[int, float]:
    """Send the messages with pauses between them. Return {number of a message: the monotonic time
    at which it was sent}."""
    said = {}
    for number in range(1, WORDS + 1):
        fields = {
            "n": number + 1,
            "time": 1.0,
            "task": "worker:0",
            "count": 1,
            "quick": 1,
            "delay_s": 1.0,
        }
        said[number] = time.monotonic()
        mesh.join_and_send(KnownRunState(round=fields))
        time.sleep(seconds / WORDS)
    return said


def _free_ports(count: int) -> list[int]:
    held = [socket.socket() for _ in range(count)]
    for one in held:
        one.bind(("127.0.0.1", 0))
    ports = [int(one.getsockname()[1]) for one in held]
    for one in held:
        one.close()
    return ports


if __name__ == "__main__":
    a_second, seconds = [*map(float, sys.argv[1:3]), *[1000.0, 10.0][len(sys.argv) - 1 :]]
    sys.exit(main(min(MOST_A_SECOND, a_second), min(MOST_SECONDS, seconds)))
