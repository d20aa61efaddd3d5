"""Run a lab of namespaces: each host has its own network interface, disk, processes and users.

`capabilities.py` lists what such a lab needs. The commands of the operator, who uses tfdeploy, run
in a network that reaches only the hosts. `cut` sets a host's link down, and `kill` acts like a
power cut. Hosts may be at several sites, which a router connects. The operator is at the first
site.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tfdeploy.errors import UsageError
from tfdeploy.lab import capabilities, folder, interpreter, network, processes, sshd
from tfdeploy.lab.lab import Lab
from tfdeploy.lab.orders import HostOrder, NetworkOrder, Plug
from tfdeploy.lab.state import HostState

USER = "lab"
# The user id of USER on the hosts. No user of this machine has it, because it lies between the
# ranges that distributions use for people and for services.
UID = 60600


class IsolatedLab(Lab):
    """A lab whose hosts have namespaces of their own."""

    @staticmethod
    def plan_hosts(root: Path, host_count: int, site_count: int) -> list[HostState]:
        """Return `host_count` new hosts, spread evenly over the sites.

        The hosts with the lowest numbers are at the first site.
        """
        hosts = []
        for number in range(1, host_count + 1):
            site = (number - 1) * site_count // host_count
            address = f"{network.subnet_prefix(root, site)}.{number}"
            hosts.append(HostState(f"n{number}", address, 22, site=site))
        return hosts

    def write_files(self) -> None:
        folder.make_keys(self.root, self.state)
        shared = self.root / "shared"
        folder.make_overlay_folders(
            self.root, self.hosts, spare=not capabilities.can_overlay_in(str(folder.labs_folder()))
        )
        for host in self.state.hosts:
            host_folder = self.folder_of(host)
            for name in ("root", "home"):
                (host_folder / name).mkdir(exist_ok=True)
            self._write_sshd(host, host_folder)
            _give_to_user(host_folder / "home")
        if self.state.shared_workdir:
            shared.mkdir(exist_ok=True)
            _give_to_user(shared)
        folder.write_inventory(self.root, self.state, USER, None)

    def start_hosts(self) -> None:
        """Start every host that does not run.

        If the network's processes have ended, start the network and all hosts again.
        """
        self._end_unrecorded_processes()
        if not all(
            processes.is_alive(self.state.networks.get(name))
            for name in self._shared_network_orders()
        ):
            processes.end_all(self._live_first_pids)
            self.state.networks.clear()
            self.state.hosts = [replace(host, process=None) for host in self.state.hosts]
        self._start([host for host in self.state.hosts if not processes.is_alive(host.process)])

    def operator_command(self, argv: Sequence[str]) -> list[str]:
        self.read_state_again()
        holder = self.state.networks.get("operator")
        if holder is None or not processes.is_alive(holder):
            raise UsageError(
                "the process of the operator's network has ended",
                where=self.name,
                next=f"`tfdeploy lab up {len(self.hosts)} --kind isolated --name {self.name}`",
            )
        return network.command_in_network(
            holder.pid, ["env", f"{processes.MARK}={self.root}/operator", *argv]
        )

    def _power_off(self, host: HostState) -> None:
        if processes.is_alive(self.state.networks.get("switch")):
            network.delete_link(self._switch_pid, host.name)
        first = host.process
        processes.end_all(lambda: {first.pid} if first and processes.is_alive(first) else set())

    @property
    def _switch_pid(self) -> int:
        """Return the pid of the process that holds the switch, the namespace of all bridges."""
        return self.state.networks["switch"].pid

    def _end_processes(self) -> None:
        processes.end_all(self._live_first_pids)
        processes.end_all(lambda: processes.find_marked(str(self.root)))

    def state_of(self, host: HostState) -> str:
        if not processes.is_alive(host.process):
            return "off"
        return "cut" if host.cut else "up"

    def _set_disconnected(self, name: str, cut: bool) -> None:
        with self.locked_host_state(name) as host:
            host.cut = cut
            if processes.is_alive(host.process):
                network.set_link(self._switch_pid, name, up=not cut)

    def _start(self, hosts: list[HostState]) -> None:
        read_only = (
            interpreter.interpreter_folders(self.state.python) if self.state.rootfs == "/" else []
        )
        orders = [self._host_order(host, read_only) for host in hosts]
        if not self.state.networks:
            self._bring_up(orders, self._shared_network_orders())
        elif hosts:
            for host in hosts:
                network.delete_link(self._switch_pid, host.name)
            self._bring_up(orders, switch_pid=self._switch_pid)

    def _shared_network_orders(self) -> dict[str, NetworkOrder]:
        """Return the requests to `boot` that start the switch, the operator's network and, if there
        are several sites, the router."""
        networks: dict[str, NetworkOrder] = {
            "switch": {"bridges": network.bridge_lines(self.state.sites)},
            "operator": {
                "plugs": [self._new_plug("operator", 0)],
                "ip": self._interface_lines(self._address(0, network.OPERATOR), 0),
                "tc": network.rate_limit_lines(network.INTERFACE, self.state.rate),
            },
        }
        if self.state.sites > 1:
            networks["router"] = self._router_order()
        return networks

    def _router_order(self) -> NetworkOrder:
        """Return the request to `boot` that starts the router. The router has one interface for
        each site, which has the name of its link."""
        between = self.state.between
        router: NetworkOrder = {"plugs": [], "ip": [], "tc": [], "forwards": True}
        for site in range(self.state.sites):
            name = f"router{site + 1}"
            plug = self._new_plug(name, site)
            router["plugs"].append({**plug, "interface": name, "rate": between})
            router["ip"] += network.interface_lines(self._address(site, network.ROUTER), name)
            router["tc"] += network.rate_limit_lines(name, between)
        return router

    def _address(self, site: int, number: int) -> str:
        return f"{network.subnet_prefix(self.root, site)}.{number}"

    def _new_plug(self, name: str, site: int) -> Plug:
        return {
            "name": name,
            "interface": network.INTERFACE,
            "bridge": network.bridge_name(site),
            "rate": self.state.rate,
            "up": True,
        }

    def _interface_lines(self, address: str, site: int) -> list[str]:
        """Return input lines of `ip` that configure the interface of a host or of the operator.

        The lines set the address, the routes to other sites, and ARP entries for the same site.
        """
        near = {host.name: host.address for host in self.state.hosts if host.site == site}
        if site == 0:
            near["operator"] = self._address(0, network.OPERATOR)
        if self.state.sites > 1:
            near[f"router{site + 1}"] = self._address(site, network.ROUTER)
        routes = network.route_lines(self.root, site, self.state.sites)
        return (
            network.interface_lines(address)
            + routes
            + network.neighbour_lines(str(self.root), near)
        )

    def _write_sshd(self, host: HostState, host_folder: Path) -> None:
        """Write the host's sshd_config."""
        config = sshd.format_sshd_config(
            address="0.0.0.0",
            port=host.port,
            host_key=Path("/etc/ssh/lab_host_key"),
            authorized_keys=Path("/etc/ssh/lab_authorized_keys"),
            pid_file=Path("/run/sshd.pid"),
            env={"PATH": sshd.host_search_path()},
        )
        (host_folder / "sshd_config").write_text(config)

    def _host_order(self, host: HostState, read_only: list[str]) -> HostOrder:
        host_folder = self.folder_of(host)
        names = "".join(f"{other.address} {other.name}\n" for other in self.state.hosts)
        shell = "/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh"
        return {
            "name": host.name,
            "disk": {
                "rootfs": self.state.rootfs,
                "folder": str(host_folder),
                "user": USER,
                "uid": UID,
                "shell": shell,
                "hosts_file": names,
                "read_only": read_only,
                "shared": str(self.root / "shared") if self.state.shared_workdir else None,
                "files": {
                    "/etc/ssh/lab_host_key": str(host_folder / "host_key"),
                    "/etc/ssh/lab_authorized_keys": str(self.root / "authorized_keys"),
                    "/etc/ssh/lab_sshd_config": str(host_folder / "sshd_config"),
                },
            },
            "console": str(host_folder / "console.log"),
            "pid_file": "/run/sshd.pid",
            "sshd": sshd.make_sshd_command(Path("/etc/ssh/lab_sshd_config")),
            "reserved": None,
            "ip": self._interface_lines(host.address, host.site),
            "tc": network.rate_limit_lines(network.INTERFACE, self.state.rate),
            "plugs": [{**self._new_plug(host.name, host.site), "up": not host.cut}],
        }


def _give_to_user(path: Path) -> None:
    """Make the hosts' user the owner of the folder `path`, with mode 0700."""
    os.chown(path, UID, UID)
    path.chmod(0o700)
