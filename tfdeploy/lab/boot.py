"""Brings hosts up, run as `python -m tfdeploy.lab.boot` with a JSON order on stdin; one JSON answer line on stdout.

It is a process of its own because it forks: `lab up` may run inside a threaded program. Each host and each network is a
forked, orphaned process, so that a lab ends with its processes, and no two labs share a name.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass

from tfdeploy.lab import disk, firstprocess, network
from tfdeploy.lab.orders import HostOrder, NetworkOrder, Order, Outcome
from tfdeploy.lab.syscalls import NEWIPC, NEWNET, NEWNS, NEWPID, NEWUTS, unshare

HOST_NAMESPACES = NEWNS | NEWUTS | NEWIPC | NEWPID | NEWNET


@dataclass
class ForkedProcess:
    """A forked process that reports one line per step and waits in between until `release` is called."""

    name: str
    pid: int
    report_fd: int
    go_fd: int

    def read_report(self) -> str:
        """Its next line, without the newline. Raises OSError with its reason where it failed."""
        line = b""
        while not line.endswith(b"\n"):
            if not (byte := os.read(self.report_fd, 1)):
                raise OSError(f"{self.name} ended without a report")
            line += byte
        if line.startswith(b"!"):
            raise OSError(line[1:].decode(errors="replace").strip())
        return line.decode().strip()

    def release(self) -> None:
        os.write(self.go_fd, b"g")


def fork_process(name: str, namespaces: int, main: Callable[[Callable[[str], None], Callable[[], None]], None]) -> ForkedProcess:
    """Forks twice; `main(report, wait)` runs in the orphan, inside `namespaces`, and must not return."""
    report_fd, write_fd = os.pipe()
    wait_fd, go_fd = os.pipe()

    def report(line: str) -> None:
        os.write(write_fd, line.replace("\n", " ").encode() + b"\n")

    def wait() -> None:
        if not os.read(wait_fd, 1):
            os._exit(1)

    def child() -> None:
        os.close(report_fd)
        os.close(go_fd)
        os.setsid()
        unshare(namespaces)
        first_fd, done_fd = os.pipe()
        if pid := os.fork():
            report(str(pid))
            os.write(done_fd, b"g")
            return
        os.close(done_fd)
        if not os.read(first_fd, 1):  # the middle process reports the pid first
            os._exit(1)
        os.close(first_fd)
        main(report, wait)

    middle = os.fork()
    if middle == 0:
        try:
            child()
        except BaseException as error:  # noqa: BLE001 - a forked child must never return into its parent's code
            report(f"!{error}")
        finally:
            os._exit(0)
    os.close(write_fd)
    os.close(wait_fd)
    os.waitpid(middle, 0)
    result = ForkedProcess(name, 0, report_fd, go_fd)
    result.pid = int(result.read_report())
    return result


def _start_network(name: str, spec: NetworkOrder) -> ForkedProcess:
    def main(report: Callable[[str], None], wait: Callable[[], None]) -> None:
        firstprocess.take_over_streams(os.devnull)
        network.ip(["link set lo up", *spec["ip"]])
        report("up")
        wait()
        if spec["forwards"]:
            network.forward()
        network.ip(spec["late"])
        network.tc(spec["tc"])
        report("up")
        while True:
            signal.pause()

    return fork_process(name, NEWNET, main)


def _start_host(host: HostOrder, kept: list[int]) -> ForkedProcess:
    own_disk = host["disk"]

    def main(report: Callable[[str], None], wait: Callable[[], None]) -> None:
        for handle in kept:
            if handle != host["reserved"]:
                os.close(handle)
        firstprocess.take_over_streams(host["console"])
        if own_disk is not None:
            disk.enter(host["name"], own_disk)
        wait()
        if own_disk is not None:
            network.ip(host["ip"])
            network.tc(host["tc"])
        sshd = firstprocess.start_sshd(host)
        report("up")
        firstprocess.reap_until_the_end(sshd)

    return fork_process(host["name"], HOST_NAMESPACES if own_disk is not None else 0, main)


def carry_out(order: Order) -> Outcome:
    """Starts every network and host. `errors` of the outcome say why a host did not start. Raises OSError."""
    pids: dict[str, int] = {}
    errors: dict[str, str] = {}
    networks = [_start_network(name, spec) for name, spec in order["networks"].items()]
    pids.update({each.name: each.pid for each in networks})
    switch = order["switch"] or pids.get("switch")
    for each in networks:
        each.read_report()
    hosts = [_start_host(host, order["kept"]) for host in order["hosts"]]
    plugged = [
        *((each.pid, order["networks"][each.name]["plugs"]) for each in networks),
        *((process.pid, host.get("plugs", [])) for host, process in zip(order["hosts"], hosts, strict=True)),
    ]
    if switch:
        network.attach(switch, order["root"], [(pid, plug) for pid, plugs in plugged for plug in plugs])
    for process in [*networks, *hosts]:
        process.release()
    for process in [*networks, *hosts]:
        pids[process.name] = process.pid
        try:
            process.read_report()
        except OSError as error:
            errors[process.name] = str(error)
    return {"pids": pids, "errors": errors}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(carry_out(json.load(sys.stdin))))
