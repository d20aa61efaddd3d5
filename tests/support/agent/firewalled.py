"""Run a host that is protected by the firewall table of a run, another host of the run, and a
container. Each has its own network namespace. Report which connections the firewall accepts.

Usage: `unshare --net python -m support.agent.firewalled FOLDER FUNCTION` prints the result of
FUNCTION as JSON. It needs root.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tfdeploy.agent import layout
from tfdeploy.agent.host.network import nft
from tfdeploy.agent.minder.firewall import Firewall, FirewallRefused
from tfdeploy.agent.run.folder import RunPaths

USER, OTHER = 4711, 4712
HERE, THERE, STRANGER = ("10.9.0.1", "fd09::1"), ("10.9.0.2", "fd09::2"), ("10.9.0.3", "fd09::3")
# FOREIGN is the port of a program that does not belong to the run. The program listens on both
# hosts.
PORT, MESH, PORT_THERE, FOREIGN = 2222, 2299, 2223, 3000
WITHIN_S = 60.0


def sh(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def tables() -> int:
    return sh("nft", "list", "tables").count("tfdeploy_")


def until(reached: Any) -> bool:
    deadline = time.monotonic() + WITHIN_S
    while not reached():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


# --- one host


def closed(host_dir: str) -> nft.ClosedPorts:
    elsewhere = tuple((address, port) for address in THERE for port in (PORT_THERE, MESH))
    name = nft.table_name_prefix(host_dir, "r-1")
    return nft.ClosedPorts(
        name=name, user=USER, ports=(PORT, MESH), allowed=(*HERE, *THERE), elsewhere=elsewhere
    )


def a_run(folder: str) -> RunPaths:
    paths = RunPaths(layout.host_dir(folder, "j", "r-1", "n1"))
    os.makedirs(paths.host_dir)
    return paths


def life(folder: str) -> dict[str, Any]:
    """Return nft's tables after each event in the life of a run's firewall, such as the death of a
    process that holds the firewall's table.
    """
    paths, state = a_run(folder), {}
    before_run = paths.open_firewall_fifo()
    first = Firewall(paths, closed(paths.host_dir))
    first.create_table_if_missing()
    supervisor = paths.open_firewall_fifo()
    assert supervisor is not None
    first.close()
    os.write(supervisor, b"\n")
    state["stands while a supervisor lives"] = tables()
    second = Firewall(paths, closed(paths.host_dir))
    second.create_table_if_missing()
    state["one table after a minder took over"] = tables()
    subprocess.run(["nft", "flush", "ruleset"], check=True)
    state["stands after nft flush ruleset"] = tables()
    os.kill(first._nft.pid, signal.SIGKILL)
    first._nft.wait()
    state["gone with its nft"] = tables()
    state["said"] = second.recreate_lost_table()
    state["stands again"] = tables()
    state["said once"] = second.recreate_lost_table()
    os.close(supervisor)
    second.close()
    state["gone with the last holder"] = until(lambda: not tables())
    state["before the run"] = before_run
    return state


def killed(folder: str) -> dict[str, Any]:
    """Kill the process that made the nftables table of a run. Then kill a second process, which
    holds the table as a supervisor does. Return whether the table exists after each step.
    """
    paths = a_run(folder)
    ready, reading_end = os.pipe()
    pids = []
    for makes in (True, False):
        pid = os.fork()
        if not pid:
            kept = Firewall(paths, closed(paths.host_dir)) if makes else paths.open_firewall_fifo()
            if isinstance(kept, Firewall):
                kept.create_table_if_missing()
            os.write(reading_end, b"!")
            signal.pause()
        pids.append(pid)
        os.read(ready, 1)
    results = {"stands": tables()}
    for number, pid in enumerate(pids):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        if number:
            results["gone after 2 of 2"] = until(lambda: not tables())
        else:
            results["stands after 1 of 2"] = tables()
    return results


def refused(folder: str) -> dict[str, Any]:
    """Make a run's table refer to a chain that does not exist, so that nft refuses the table.
    Return the error and the number of tables that are left.
    """
    paths = a_run(folder)
    real = nft.build_table
    nft.build_table = lambda closed: real(closed).replace("jump others", "jump nobody")
    try:
        Firewall(paths, closed(paths.host_dir)).create_table_if_missing()
    except FirewallRefused as error:
        return {"said": str(error), "tables": tables()}
    return {}


# --- three hosts


@contextmanager
def namespace() -> Iterator[str]:
    """Create another network namespace. Yield the pid of the process that keeps the namespace
    alive."""
    process = subprocess.Popen(
        ["unshare", "--net", "sh", "-c", "echo; exec sleep 1000"], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        process.stdout.readline()
        yield str(process.pid)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def inside(pid: str, *words: str) -> list[str]:
    return ["nsenter", "--target", pid, "--net", *words]


def wire(peer: str, container: str) -> None:
    sh("ip", "link", "set", "lo", "up")
    for pid, link in ((peer, "to-there"), (container, "to-inside")):
        sh("ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", pid)
        sh("ip", "link", "set", link, "up")
        sh(*inside(pid, "ip", "link", "set", "lo", "up"))
        sh(*inside(pid, "ip", "link", "set", "eth0", "up"))
    for address, host in [
        *((each, "") for each in HERE),
        *((each, peer) for each in (*THERE, *STRANGER)),
    ]:
        add = [
            "ip",
            "address",
            "add",
            address + ("/64" if ":" in address else "/24"),
            "dev",
            "eth0" if host else "to-there",
        ]
        add += ["nodad"] if ":" in address else []
        sh(*(inside(host, *add) if host else add))
    sh("ip", "address", "add", "172.30.0.1/24", "dev", "to-inside")
    sh(*inside(container, "ip", "address", "add", "172.30.0.2/24", "dev", "eth0"))
    sh(*inside(container, "ip", "route", "add", "default", "via", "172.30.0.1"))
    sh(*inside(peer, "ip", "route", "add", "172.30.0.0/24", "via", HERE[0]))
    sh("sysctl", "-qw", "net.ipv4.ip_forward=1")


KNOCK = """
import os, socket, sys
source, address, port, count, user = sys.argv[1:]
if int(user):
    os.setgid(int(user)); os.setuid(int(user))
def is_let_in(tries):
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as one:
        one.settimeout(3)
        if source:
            one.bind((source, 0))
        try:
            one.connect((address, int(port)))
            return True
        except ConnectionRefusedError:
            return False
        except TimeoutError:  # the machine is slow: the table rejects, and drops nothing
            if tries == 1:
                raise
    return is_let_in(tries - 1)
print(sum(is_let_in(3) for _ in range(int(count))))
"""
SERVE = """
import selectors, socket, sys
waiting = selectors.DefaultSelector()
for port in sys.argv[1:]:
    one = socket.create_server(
        ("::", int(port)), family=socket.AF_INET6, dualstack_ipv6=True, backlog=1000
    )
    waiting.register(one, selectors.EVENT_READ)
print(flush=True)
while True:
    for key, _ in waiting.select():
        key.fileobj.accept()[0].close()
"""


def knock(
    where: str, address: str, port: int, *, source: str = "", count: int = 1, user: int = 0
) -> int:
    words = [sys.executable, "-c", KNOCK, source, address, str(port), str(count), str(user)]
    return int(sh(*(inside(where, *words) if where else words)))


@contextmanager
def servers(*where_and_ports: tuple[str, tuple[int, ...]]) -> Iterator[None]:
    started = []
    for where, ports in where_and_ports:
        words = [sys.executable, "-c", SERVE, *map(str, ports)]
        started.append(
            subprocess.Popen(inside(where, *words) if where else words, stdout=subprocess.PIPE)
        )
        assert started[-1].stdout is not None
        started[-1].stdout.readline()
    try:
        yield
    finally:
        for each in started:
            each.kill()
            each.wait()
            assert each.stdout is not None
            each.stdout.close()


def last_acks() -> int:
    """Return the number of connections in the TCP state LAST_ACK, which wait for the peer's last
    packet.
    """
    listed = [Path("/proc/net", table).read_text().splitlines()[1:] for table in ("tcp", "tcp6")]
    return sum(line.split()[3] == "09" for lines in listed for line in lines)


def let_in(folder: str) -> dict[str, Any]:
    """Return how many connections from each source are accepted."""
    paths = a_run(folder)
    with namespace() as peer, namespace() as container:
        wire(peer, container)
        with servers(("", (PORT, MESH, FOREIGN)), (peer, (PORT_THERE, FOREIGN))):
            open_before = knock(peer, HERE[0], PORT, source=STRANGER[0]) + knock(
                "", HERE[0], PORT, user=OTHER
            )
            firewall = Firewall(paths, closed(paths.host_dir))
            firewall.create_table_if_missing()
            counts = {"open before": open_before, **_knocks(peer, container)}
            assert firewall._nft.poll() is None
            os.kill(firewall._nft.pid, signal.SIGKILL)
            nft = firewall._nft
            # The kernel removes the table before other processes can see that the owner of the
            # table has exited.
            until(lambda: not tables() and nft.poll() is not None)
            firewall.recreate_lost_table()
            counts["strangers once it was made again"] = sum(
                knock(peer, near, PORT, source=stranger)
                for near, stranger in zip(HERE, STRANGER, strict=True)
            )
            firewall.close()
    return counts


def _knocks(peer: str, container: str) -> dict[str, Any]:
    own = [(address, PORT) for address in ("127.0.0.1", "::1", *HERE)]
    counts: dict[str, Any] = {"hosts of the run": 0, "strangers": 0}
    for far, near, stranger in zip(THERE, HERE, STRANGER, strict=True):
        for port in (PORT, MESH):
            counts["hosts of the run"] += knock(peer, near, port, source=far, count=50)
            counts["strangers"] += knock(peer, near, port, source=stranger, count=2500)
    counts["the run's user here"] = sum(knock("", *end, count=25, user=USER) for end in own)
    counts["the run's user to there"] = sum(
        knock("", far, PORT_THERE, count=25, user=USER) for far in THERE
    )
    for name, user in (("another user", OTHER), ("root", 0)):
        counts[f"{name} here"] = sum(knock("", *end, count=1250, user=user) for end in own)
        counts[f"{name} to there"] = sum(
            knock("", far, PORT_THERE, count=2500, user=user) for far in THERE
        )
        counts[f"{name} to other programs"] = knock("", HERE[0], FOREIGN, user=user) + knock(
            "", THERE[0], FOREIGN, user=user
        )
    counts["a container here"] = knock(container, HERE[0], PORT, count=50)
    counts["a container to there"] = knock(container, THERE[0], PORT_THERE, count=50)
    counts["a container to other programs"] = knock(container, HERE[0], FOREIGN) + knock(
        container, THERE[0], FOREIGN
    )
    counts["strangers to other programs"] = sum(
        knock(peer, HERE[0], FOREIGN, source=each) for each in (STRANGER[0], THERE[0])
    )
    counts["last packets that never came"] = 0 if until(lambda: not last_acks()) else last_acks()
    return counts


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[2]](sys.argv[1])))
