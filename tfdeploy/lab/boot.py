"""Brings hosts up, run as `python -m tfdeploy.lab.boot` with a JSON order on stdin; one JSON answer line on stdout.

A process of its own because it forks: `lab up` may run inside a threaded program. Each host and each network is a
forked, orphaned process, so that everything of the lab ends with its processes and nothing has a name to collide.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass

from tfdeploy.lab import disk, firstprocess, wires
from tfdeploy.lab.orders import HostOrder, NetworkOrder, Order, Outcome
from tfdeploy.lab.syscalls import NEWIPC, NEWNET, NEWNS, NEWPID, NEWUTS, unshare

HOST_NAMESPACES = NEWNS | NEWUTS | NEWIPC | NEWPID | NEWNET


@dataclass
class Newborn:
    """A forked process that waits for the word to go on. It says one line per step."""

    name: str
    pid: int
    said: int
    go: int

    def hear(self) -> str:
        """Its next line. Raises OSError with its reason when it failed."""
        line = b""
        while not line.endswith(b"\n"):
            if not (byte := os.read(self.said, 1)):
                raise OSError(f"{self.name} ended without a word")
            line += byte
        if line.startswith(b"!"):
            raise OSError(line[1:].decode(errors="replace").strip())
        return line.decode().strip()

    def release(self) -> None:
        os.write(self.go, b"g")


def newborn(name: str, namespaces: int, life: Callable[[Callable[[str], None], Callable[[], None]], None]) -> Newborn:
    """Forks twice into `namespaces`; `life(say, wait)` runs in the orphan and must not return."""
    said, say_to = os.pipe()
    wait_on, go = os.pipe()

    def say(line: str) -> None:
        os.write(say_to, line.replace("\n", " ").encode() + b"\n")

    def wait() -> None:
        if not os.read(wait_on, 1):
            os._exit(1)

    def child() -> None:
        os.close(said)
        os.close(go)
        os.setsid()
        unshare(namespaces)
        heard, done = os.pipe()
        if pid := os.fork():
            say(str(pid))
            os.write(done, b"g")
            return
        os.close(done)
        if not os.read(heard, 1):  # first its pid, then its own words
            os._exit(1)
        os.close(heard)
        life(say, wait)

    middle = os.fork()
    if middle == 0:
        try:
            child()
        except BaseException as error:  # noqa: BLE001 - a forked child must never return into its parent's code
            say(f"!{error}")
        finally:
            os._exit(0)
    os.close(say_to)
    os.close(wait_on)
    os.waitpid(middle, 0)
    result = Newborn(name, 0, said, go)
    result.pid = int(result.hear())
    return result


def _hold_network(name: str, spec: NetworkOrder) -> Newborn:
    def life(say: Callable[[str], None], wait: Callable[[], None]) -> None:
        firstprocess.take_over_streams(os.devnull)
        wires.ip(["link set lo up", *spec["ip"]])
        say("up")
        wait()
        wires.ip(spec["late"])
        wires.tc(spec["tc"])
        say("up")
        while True:
            signal.pause()

    return newborn(name, NEWNET, life)


def _host(host: HostOrder, kept: list[int]) -> Newborn:
    own_disk = host["disk"]

    def life(say: Callable[[str], None], wait: Callable[[], None]) -> None:
        for handle in kept:
            if handle != host["reserved"]:
                os.close(handle)
        firstprocess.take_over_streams(host["console"])
        if own_disk is not None:
            disk.enter(host["name"], own_disk)
        wait()
        if own_disk is not None:
            wires.ip(host["ip"])
            wires.tc(host["tc"])
        sshd = firstprocess.start_sshd(host)
        say("up")
        firstprocess.reap_until_the_end(sshd)

    return newborn(host["name"], HOST_NAMESPACES if own_disk is not None else 0, life)


def carry_out(order: Order) -> Outcome:
    """Every network and host is started, or an error says why not."""
    pids: dict[str, int] = {}
    errors: dict[str, str] = {}
    networks = [_hold_network(name, spec) for name, spec in order["networks"].items()]
    pids.update({network.name: network.pid for network in networks})
    switch = order["switch"] or pids.get("switch")
    for network in networks:
        network.hear()
    hosts = [_host(host, order["kept"]) for host in order["hosts"]]
    plugs = {**{network.name: network.pid for network in networks if network.name != "switch"}}
    plugs.update({host["name"]: born.pid for host, born in zip(order["hosts"], hosts, strict=True) if host["disk"] is not None})
    if switch:
        wires.plug(switch, order["root"], plugs, order["unplugged"], order["rate"])
    for born in [*networks, *hosts]:
        born.release()
    for born in [*networks, *hosts]:
        pids[born.name] = born.pid
        try:
            born.hear()
        except OSError as error:
            errors[born.name] = str(error)
    return {"pids": pids, "errors": errors}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(carry_out(json.load(sys.stdin))))
