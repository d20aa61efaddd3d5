"""A lab of namespaces (`capabilities` says what that needs): each host has its own network interface, disk,
processes, names and users. The operator has a network of its own, which reaches the hosts and nothing else.
`cut` sets a link down, `kill` is a power cut. Hosts may be at several sites, with a router between them; the
operator is at the first.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tfdeploy.errors import UsageError
from tfdeploy.lab import capabilities, folder, interpreter, network, processes, sshd, starter
from tfdeploy.lab.orders import HostOrder, NetworkOrder, Order, Plug
from tfdeploy.lab.protocol import Carried
from tfdeploy.lab.state import HostState
from tfdeploy.lab.stored import StoredLab

USER = "lab"
UID = 60600  # between the ranges of users and of services, so that no user here is the hosts' user too
HOME = f"/home/{USER}"
ENTERED = ("--mount", "--net", "--pid", "--uts", "--ipc", "--root")


class IsolatedLab(StoredLab):
    """See protocol.Lab."""

    @staticmethod
    def plan_hosts(root: Path, count: int, sites: int) -> list[HostState]:
        """As many at each site, those with low numbers at the first."""
        at = [index * sites // count for index in range(count)]
        return [HostState(f"n{n}", f"{network.subnet(root, site)}.{n}", 22, site=site) for n, site in enumerate(at, 1)]

    def prepare(self) -> None:
        """Writes everything that is not a process. Safe to repeat."""
        folder.make_keys(self.root, self.state)
        shared = self.root / "shared"
        folder.make_layers(self.root, self.hosts, spare=not capabilities.can_stack_in(str(folder.labs_folder())))
        for host in self.state.hosts:
            place = folder.host_folder(self.root, host.name)
            for name in ("root", "home"):
                (place / name).mkdir(exist_ok=True)
            self._write_sshd(host, place)
            _give_to_user(place / "home")
        if self.state.shared_workdir:
            shared.mkdir(exist_ok=True)
            _give_to_user(shared)
        folder.write_inventory(self.root, self.state, USER, None)

    def ensure(self) -> None:
        """Starts every host that does not answer, and the network if it is gone (then all hosts)."""
        starter.end_strays(self.root, self.state)
        if not all(processes.is_alive(self.state.networks.get(name)) for name in self._networks()):
            processes.end_all(self._first_processes)
            self.state.networks.clear()
            self.state.hosts = [replace(host, process=None) for host in self.state.hosts]
        self._start([host for host in self.state.hosts if not processes.is_alive(host.process)])

    def operator(self, argv: Sequence[str]) -> list[str]:
        self.reread()
        holder = self.state.networks.get("operator")
        if holder is None or not processes.is_alive(holder):
            again = f"tfdeploy lab up {len(self.hosts)} --kind isolated --name {self.name}"
            raise UsageError("the operator's network is gone", where=self.name, next=again)
        return network.inside(holder.pid, ["env", f"{processes.MARK}={self.root}/operator", *argv])

    def on(self, host: str, argv: Sequence[str], *, root: bool = False) -> list[str]:
        first = self.host(host).process
        if first is None or not processes.is_alive(first):
            raise UsageError(f"{host} is off", where=host, next=f"tfdeploy lab boot {host} --name {self.name}")
        enter = ["nsenter", f"--target={first.pid}", *ENTERED, "--"]
        become = [] if root else ["setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups"]
        user, home = ("root", "/root") if root else (USER, HOME)
        return [*enter, *become, "env", "-i", "-C", home, f"HOME={home}", f"USER={user}", f"PATH={sshd.login_path()}", *argv]

    def cut(self, host: str) -> None:
        self._set_cut(host, True)

    def heal(self, host: str) -> None:
        self._set_cut(host, False)

    def kill(self, host: str) -> None:
        with self.changing(host) as found:
            if processes.is_alive(self.state.networks.get("switch")):
                network.detach(self.state.networks["switch"].pid, host)
            first = found.process
            processes.end_all(lambda: {first.pid} if first and processes.is_alive(first) else set())
            found.process = None

    def boot(self, host: str) -> None:
        with self.changing(host) as found:
            if not processes.is_alive(found.process):
                self._start([found])

    def carried(self) -> dict[str, Carried]:
        self.reread()
        return network.carried(self.state.networks["switch"].pid)

    def down(self) -> None:
        with folder.locked(self.root):
            self.reread()
            processes.end_all(self._first_processes)
            processes.end_all(lambda: processes.marked(str(self.root)) - processes.own_ancestry())
            aside = folder.put_aside(self.root)
        folder.remove(aside)

    def state_of(self, host: HostState) -> str:
        if not processes.is_alive(host.process):
            return "off"
        return "cut" if host.cut else "up"

    def _set_cut(self, name: str, cut: bool) -> None:
        with self.changing(name) as host:
            host.cut = cut
            if processes.is_alive(host.process):
                network.set_link(self.state.networks["switch"].pid, name, up=not cut)

    def _first_processes(self) -> set[int]:
        known = (*self.state.networks.values(), *(host.process for host in self.state.hosts))
        return {process.pid for process in known if process and processes.is_alive(process)}

    def _start(self, hosts: list[HostState]) -> None:
        fresh = not self.state.networks
        if not hosts and not fresh:
            return
        if not fresh:
            for host in hosts:
                network.detach(self.state.networks["switch"].pid, host.name)
        read_only = interpreter.folders(self.state.python) if self.state.rootfs == "/" else []
        order: Order = {
            "root": str(self.root),
            "networks": self._networks() if fresh else {},
            "switch": None if fresh else self.state.networks["switch"].pid,
            "hosts": [self._order(host, read_only) for host in hosts],
            "kept": [],
        }
        starter.start(self.root, self.state, order)

    def _networks(self) -> dict[str, NetworkOrder]:
        bridges: NetworkOrder = {
            "ip": network.bridge_lines(self.state.sites),
            "plugs": [],
            "late": [],
            "tc": [],
            "forwards": False,
        }
        operator: NetworkOrder = {
            "ip": [],
            "plugs": [self._plug("operator", 0)],
            "late": self._interface(self._address(0, network.OPERATOR), 0),
            "tc": network.shape(network.INTERFACE, self.state.rate),
            "forwards": False,
        }
        several = {"router": self._router()} if self.state.sites > 1 else {}
        return {"switch": bridges, "operator": operator, **several}

    def _router(self) -> NetworkOrder:
        """Its interfaces have the names of its links."""
        names = [f"router{site + 1}" for site in range(self.state.sites)]
        addresses = [self._address(site, network.ROUTER) for site in range(self.state.sites)]
        plugs: list[Plug] = [
            {"name": name, "interface": name, "bridge": network.bridge(site), "rate": self.state.between, "up": True}
            for site, name in enumerate(names)
        ]
        return {
            "ip": [],
            "plugs": plugs,
            "late": [
                line for name, address in zip(names, addresses, strict=True) for line in network.interface_lines(address, name)
            ],
            "tc": [line for name in names for line in network.shape(name, self.state.between)],
            "forwards": True,
        }

    def _address(self, site: int, number: int) -> str:
        return f"{network.subnet(self.root, site)}.{number}"

    def _plug(self, name: str, site: int, *, cut: bool = False) -> Plug:
        rate = self.state.rate
        return {"name": name, "interface": network.INTERFACE, "bridge": network.bridge(site), "rate": rate, "up": not cut}

    def _interface(self, address: str, site: int) -> list[str]:
        near = {host.name: host.address for host in self.state.hosts if host.site == site}
        if site == 0:
            near["operator"] = self._address(0, network.OPERATOR)
        if self.state.sites > 1:
            near[f"router{site + 1}"] = self._address(site, network.ROUTER)
        routes = network.route_lines(self.root, site, self.state.sites)
        return network.interface_lines(address) + routes + network.neighbour_lines(str(self.root), near)

    def _write_sshd(self, host: HostState, place: Path) -> None:
        config = sshd.config(
            address="0.0.0.0",
            port=host.port,
            host_key=Path("/etc/ssh/lab_host_key"),
            authorized_keys=Path("/etc/ssh/lab_authorized_keys"),
            pid_file=Path("/run/sshd.pid"),
            env={"PATH": sshd.login_path()},
        )
        (place / "sshd_config").write_text(config)

    def _order(self, host: HostState, read_only: list[str]) -> HostOrder:
        place = folder.host_folder(self.root, host.name)
        names = "".join(f"{other.address} {other.name}\n" for other in self.state.hosts)
        shell = "/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh"
        return {
            "name": host.name,
            "disk": {
                "rootfs": self.state.rootfs,
                "folder": str(place),
                "user": USER,
                "uid": UID,
                "shell": shell,
                "hosts_file": names,
                "read_only": read_only,
                "shared": str(self.root / "shared") if self.state.shared_workdir else None,
                "files": {
                    "/etc/ssh/lab_host_key": str(place / "host_key"),
                    "/etc/ssh/lab_authorized_keys": str(self.root / "authorized_keys"),
                    "/etc/ssh/lab_sshd_config": str(place / "sshd_config"),
                },
            },
            "console": str(place / "console.log"),
            "pid_file": "/run/sshd.pid",
            "sshd": [sshd.program("sshd", "openssh-server"), "-D", "-e", "-f", "/etc/ssh/lab_sshd_config"],
            "ip": self._interface(host.address, host.site),
            "tc": network.shape(network.INTERFACE, self.state.rate),
            "plugs": [self._plug(host.name, host.site, cut=host.cut)],
            "reserved": None,
        }


def _give_to_user(path: Path) -> None:
    os.chown(path, UID, UID)
    path.chmod(0o700)
