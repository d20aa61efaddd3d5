"""Run a lab without root: each host is an unprivileged sshd on 127.0.0.1 with its own home folder.

All hosts share this machine's network, processes and disk. Each host has a block of 16 ports. Its
sshd listens on the first port, and the next ten are its `ports:` in the inventory. The host's first
process binds the first port of the block for *UDP*. This shows other labs on this machine that the
block is in use, and leaves all TCP ports to sshd and TensorFlow.
"""

from __future__ import annotations

import itertools
import os
import pwd
import socket
import zlib
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from tfdeploy.errors import Refused, UsageError
from tfdeploy.lab import folder, processes, sshd
from tfdeploy.lab.lab import Lab
from tfdeploy.lab.orders import HostOrder
from tfdeploy.lab.state import HostState

ADDRESS = "127.0.0.1"
# The blocks are below the kernel's ephemeral ports. BLOCK: the number of ports in a block. PORTS:
# the number of ports in a host's `ports:`.
FIRST_PORT, LAST_PORT, BLOCK, PORTS = 20000, 32000, 16, 10


def _bind_socket(kind: socket.SocketKind, address: str, port: int) -> socket.socket:
    """Return a socket that is bound to the port. Raises OSError if the port is in use."""
    bound = socket.socket(socket.AF_INET, kind)
    if kind is socket.SOCK_STREAM:
        # With this option, a port counts as free if only closing connections (TIME_WAIT) use it.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((address, port))
    except OSError:
        bound.close()
        raise
    return bound


def reserve_port_block(port: int) -> socket.socket:
    """Reserve the block of ports that begins at `port`. Return the UDP socket that holds the block.

    Raises OSError if another lab holds the block, or if a port of the block is in use.
    """
    reservation = _bind_socket(socket.SOCK_DGRAM, ADDRESS, port)
    try:
        for each in range(port, port + PORTS + 1):
            _bind_socket(socket.SOCK_STREAM, "", each).close()
    except OSError:
        reservation.close()
        raise
    return reservation


def _is_free(port: int) -> bool:
    try:
        reserve_port_block(port).close()
    except OSError:
        return False
    return True


def choose_ports(root: Path, host_count: int) -> list[int]:
    """Return the first ports of `host_count` free blocks. Raises Refused if fewer are free."""
    blocks = range(FIRST_PORT, LAST_PORT, BLOCK)
    offset = zlib.crc32(str(root).encode()) % len(blocks)
    free = filter(_is_free, (*blocks[offset:], *blocks[:offset]))
    chosen = list(itertools.islice(free, host_count))
    if len(chosen) < host_count:
        raise Refused(
            f"fewer than {host_count} blocks of ports are free between {FIRST_PORT} and "
            f"{LAST_PORT}",
            where="this machine",
        )
    return chosen


def plan_hosts(root: Path, host_count: int) -> list[HostState]:
    """Return `host_count` new hosts, each with a free block of ports. Raises Refused."""
    return [
        HostState(f"n{number}", ADDRESS, port, ports=(port + 1, port + PORTS))
        for number, port in enumerate(choose_ports(root, host_count), start=1)
    ]


class LoopbackLab(Lab):
    """A lab whose hosts are unprivileged sshds on 127.0.0.1."""

    def write_files(self) -> None:
        sshd.make_privilege_folder()
        folder.make_keys(self.root, self.state)
        for host in self.state.hosts:
            home = self._home(host)
            home.mkdir(mode=0o700, exist_ok=True)
            (self.folder_of(host) / "sshd_config").write_text(self._sshd_config(host))
        shared = self.root / "shared"
        if self.state.shared_workdir:
            shared.mkdir(mode=0o700, exist_ok=True)
        user = pwd.getpwuid(os.getuid()).pw_name
        folder.write_inventory(
            self.root, self.state, user, str(shared) if self.state.shared_workdir else None
        )

    def start_hosts(self) -> None:
        self._end_unrecorded_processes()
        self._start([host for host in self.state.hosts if not self._is_up(host)])

    def operator_command(self, argv: Sequence[str]) -> list[str]:
        return list(argv)

    def _set_disconnected(self, name: str, cut: bool) -> None:
        self.host(name)
        raise UsageError(
            "a loopback lab has no cable to cut",
            where=name,
            next="as root: `tfdeploy lab up 3 --kind isolated`",
        )

    def _power_off(self, host: HostState) -> None:
        self._end_hosts([host])

    def _end_processes(self) -> None:
        self._end_hosts(self.state.hosts)

    def state_of(self, host: HostState) -> str:
        return "up" if self._is_up(host) else "off"

    def _home(self, host: HostState) -> Path:
        return self.folder_of(host) / "home"

    def _environment(self, host: HostState) -> dict[str, str]:
        """Return the environment variables of the programs that the host's sshd starts."""
        return {
            "HOME": str(self._home(host)),
            "PATH": sshd.host_search_path(),
            processes.MARK: f"{self.root}/{host.name}",
        }

    def _sshd_config(self, host: HostState) -> str:
        host_folder = self.folder_of(host)
        return sshd.format_sshd_config(
            address=ADDRESS,
            port=host.port,
            host_key=host_folder / "host_key",
            authorized_keys=self.root / "authorized_keys",
            pid_file=host_folder / "sshd.pid",
            env=self._environment(host),
        )

    def _is_up(self, host: HostState) -> bool:
        """True if the host's sshd runs. It then also listens, because `_start` waits for that.

        This function does not connect to sshd, because sshd penalises connections without a login.
        """
        if host.process is None or not processes.is_alive(host.process):
            return False
        running = processes.with_descendants([host.process.pid])
        return sshd.read_pid(self.folder_of(host) / "sshd.pid") in running

    def _end_hosts(self, hosts: list[HostState]) -> None:
        """End all processes of these hosts.

        A process belongs to a host if its environment has the host's mark (TFDEPLOY_LAB), or if it
        descends from the host's first process. First processes end last, because they reap others.
        """
        first = {
            host.process.pid for host in hosts if host.process and processes.is_alive(host.process)
        }
        whole = len(hosts) == len(self.state.hosts)
        marks = [str(self.root)] if whole else [f"{self.root}/{host.name}" for host in hosts]

        def remaining() -> set[int]:
            pids = first.union(*(processes.find_marked(mark) for mark in marks))
            return processes.with_descendants(pids)

        processes.end_all(lambda: remaining() - first)
        processes.end_all(remaining)

    def _start(self, hosts: list[HostState]) -> None:
        if not hosts:
            return
        self._end_hosts(hosts)
        with ExitStack() as reservations:
            self._bring_up(
                [self._host_order(host, self._reserve_ports(host, reservations)) for host in hosts]
            )

    def _reserve_ports(self, host: HostState, reservations: ExitStack) -> int:
        """Reserve the host's block of ports. Return the descriptor that holds the block."""
        try:
            return reservations.enter_context(reserve_port_block(host.port)).fileno()
        except OSError as error:
            ports = f"the ports {host.port} to {host.port + PORTS} of {host.name}"
            raise Refused(
                f"one of {ports} is in use ({error.strerror})",
                where=ADDRESS,
                next=f"`tfdeploy lab down --name {self.name}`, then start the lab again",
            ) from error

    def _host_order(self, host: HostState, reserved: int) -> HostOrder:
        host_folder = self.folder_of(host)
        return {
            "name": host.name,
            "disk": None,
            "console": str(host_folder / "console.log"),
            "pid_file": str(host_folder / "sshd.pid"),
            "sshd": sshd.make_sshd_command(host_folder / "sshd_config"),
            "reserved": reserved,
            "ip": [],
            "tc": [],
            "plugs": [],
        }
