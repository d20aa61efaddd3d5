"""Start the hosts of a lab. This is the program `python -m tfdeploy.lab.boot`.

The program reads one `Order` of `lab/orders.py` from stdin as JSON, and writes one line with an
`Outcome` to stdout. It is a process of its own because it forks, and `lab up` may run in a process
with several threads. Each host has an orphaned process that holds its namespaces, and so has each
network. The kernel therefore removes the links and mounts of a lab when these processes end. Two
labs may therefore use the same names.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass

from tfdeploy.lab import disk, firstprocess, network
from tfdeploy.lab.orders import HostOrder, NetworkOrder, Order, Outcome, reserved_descriptors
from tfdeploy.lab.syscalls import NEWIPC, NEWNET, NEWNS, NEWPID, NEWUTS, unshare

HOST_NAMESPACES = NEWNS | NEWUTS | NEWIPC | NEWPID | NEWNET


@dataclass
class ForkedProcess:
    """A forked process that reports one line after each step, and then waits for `release`."""

    name: str
    pid: int
    report_fd: int
    release_fd: int

    def read_report(self) -> str:
        """Return the next line that the process reports, without the newline.

        Raises OSError with the reason if the process failed.
        """
        line = b""
        while not line.endswith(b"\n"):
            if not (byte := os.read(self.report_fd, 1)):
                raise OSError(f"{self.name} ended without a report")
            line += byte
        if line.startswith(b"!"):
            raise OSError(line[1:].decode(errors="replace").strip())
        return line.decode().strip()

    def release(self) -> None:
        os.write(self.release_fd, b"g")


Report = Callable[[str], None]
Wait = Callable[[], None]
Main = Callable[[Report, Wait], None]


def fork_orphan(name: str, namespaces: int, main: Main) -> ForkedProcess:
    """Fork twice, and run `main(report, wait)` in the grandchild, in new `namespaces`.

    `main` must not return. `main` gets two functions: `report` sends one line to the calling
    process, and `wait` waits until the calling process calls `release` of the returned object.
    """
    report_fd, write_fd = os.pipe()
    wait_fd, release_fd = os.pipe()

    def report(line: str) -> None:
        os.write(write_fd, line.replace("\n", " ").encode() + b"\n")

    def wait() -> None:
        if not os.read(wait_fd, 1):
            os._exit(1)

    def child() -> None:
        os.close(report_fd)
        os.close(release_fd)
        os.setsid()
        unshare(namespaces)
        first_fd, done_fd = os.pipe()
        if pid := os.fork():
            report(str(pid))
            os.write(done_fd, b"g")
            return
        os.close(done_fd)
        # The pid must be the first line of the report, so wait until the middle process has written
        # it.
        if not os.read(first_fd, 1):
            os._exit(1)
        os.close(first_fd)
        main(report, wait)

    middle = os.fork()
    if middle == 0:
        try:
            child()
        # The child catches every exception, because it must never return into its parent's code.
        except BaseException as error:  # noqa: BLE001
            report(f"!{error}")
        finally:
            os._exit(0)
    os.close(write_fd)
    os.close(wait_fd)
    os.waitpid(middle, 0)
    process = ForkedProcess(name, 0, report_fd, release_fd)
    process.pid = int(process.read_report())
    return process


def _start_network(name: str, spec: NetworkOrder) -> ForkedProcess:
    """Start the process that holds a network's namespace, and create its bridges and links."""

    def main(report: Report, wait: Wait) -> None:
        firstprocess.redirect_standard_streams(os.devnull)
        network.run_batch("ip", ["link set lo up", *spec.get("bridges", ())])
        report("up")
        wait()
        if spec.get("forwards"):
            network.enable_forwarding()
        network.run_batch("ip", spec.get("ip", ()))
        network.run_batch("tc", spec.get("tc", ()))
        report("up")
        while True:
            signal.pause()

    return fork_orphan(name, NEWNET, main)


def _start_host(host: HostOrder, inherited_descriptors: list[int]) -> ForkedProcess:
    """Start a host's first process.

    The process inherits `inherited_descriptors`, and closes those that belong to other hosts.
    """
    own_disk = host["disk"]

    def main(report: Report, wait: Wait) -> None:
        for descriptor in inherited_descriptors:
            if descriptor != host["reserved"]:
                os.close(descriptor)
        firstprocess.redirect_standard_streams(host["console"])
        if own_disk is not None:
            disk.enter_new_root(host["name"], own_disk)
        wait()
        network.run_batch("ip", host["ip"])
        network.run_batch("tc", host["tc"])
        sshd = firstprocess.start_sshd(host)
        report("up")
        firstprocess.reap_until_host_ends(sshd)

    return fork_orphan(host["name"], HOST_NAMESPACES if own_disk is not None else 0, main)


def start_ordered_processes(order: Order) -> Outcome:
    """Start every network and host that `order` lists. Return a record with their pids.

    The field `errors` of the record says what did not start, and why. Raises OSError.
    """
    errors: dict[str, str] = {}
    networks = [_start_network(name, spec) for name, spec in order["networks"].items()]
    pids = {each.name: each.pid for each in networks}
    switch = order["switch"] or pids.get("switch")
    for process in networks:
        process.read_report()
    inherited_descriptors = reserved_descriptors(order["hosts"])
    hosts = [_start_host(host, inherited_descriptors) for host in order["hosts"]]
    pids.update({each.name: each.pid for each in hosts})
    if switch:
        plugs = {name: spec.get("plugs", []) for name, spec in order["networks"].items()}
        plugs |= {host["name"]: host["plugs"] for host in order["hosts"]}
        plugged = [(pids[name], plug) for name, each in plugs.items() for plug in each]
        network.attach_links(switch, order["root"], plugged)
    for process in [*networks, *hosts]:
        process.release()
    for process in [*networks, *hosts]:
        try:
            process.read_report()
        except OSError as error:
            errors[process.name] = str(error)
    return {"pids": pids, "errors": errors}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(start_ordered_processes(json.load(sys.stdin))))
