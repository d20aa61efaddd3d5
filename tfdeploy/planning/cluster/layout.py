"""Defines the cluster as TensorFlow sees it: the tasks with their hosts, addresses and ports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from tfdeploy.model.modes import ModeRules
from tfdeploy.model.plan import cluster_json, endpoint
from tfdeploy.planning.cluster.placement import Seat, Seats, deciding_tasks


@dataclass(frozen=True)
class Layout:
    """The cluster: its tasks with their hosts, addresses and ports.

    `port_by_task`: {task: port}, for tasks that listen. `endpoint_by_task`: {task: "host:port"},
    for the same tasks. `address_by_host`: {host: address}. `mesh_port_by_host`: {host: port on
    which its agent talks to the other hosts}. `cluster`: {role: endpoints}. `deciding`: the tasks
    that must succeed for the run to succeed.
    """

    seats: Seats
    address_by_host: Mapping[str, str]
    port_by_task: Mapping[str, int]
    endpoint_by_task: Mapping[str, str]
    mesh_port_by_host: Mapping[str, int]
    cluster: dict[str, tuple[str, ...]]
    deciding: tuple[str, ...]

    @cached_property
    def joined_endpoints(self) -> dict[str, str]:
        """Return {role: its endpoints}, joined by commas.

        In a large cluster the texts are long, so they are made only once and not for each task.
        """
        return {role: ",".join(endpoints) for role, endpoints in self.cluster.items()}

    @cached_property
    def cluster_json(self) -> str:
        """Return the cluster as JSON for a flag: `{"ps": ["host:port"], "worker": [...]}`."""
        return cluster_json(self.cluster)

    def seats_on(self, host: str) -> Seats:
        """Return the tasks of a host."""
        return tuple(seat for seat in self.seats if seat.host == host)


def count_task_and_agent_ports(
    mode: ModeRules, seats: Seats, hosts: Mapping[str, object]
) -> dict[str, int]:
    """Return {host: number of ports that it needs}: one for each listening task, one for the agent.

    The agent's port is the mesh port, on which the hosts exchange messages.
    """
    needed = dict.fromkeys(hosts, 1)
    for seat in seats:
        needed[seat.host] += _task_listens(mode, seat)
    return needed


def lay_out(
    mode: ModeRules,
    seats: Seats,
    address_by_host: Mapping[str, str],
    ports_by_host: Mapping[str, tuple[int, ...]],
) -> Layout:
    """Return the cluster with a port for each task that listens.

    `ports_by_host`: {host: its ports}. The tasks of the host get these ports in order. The last
    port becomes the mesh port, on which the host's agent receives messages from other hosts.
    """
    free = {host: iter(ports) for host, ports in ports_by_host.items()}
    listening = [seat for seat in seats if _task_listens(mode, seat)]
    ports = {seat.task: next(free[seat.host]) for seat in listening}
    endpoints = {
        seat.task: endpoint(address_by_host[seat.host], ports[seat.task]) for seat in listening
    }
    mesh = {host: next(ports) for host, ports in free.items()}
    cluster = {
        role: tuple(endpoints[seat.task] for seat in listening if seat.role == role)
        for role in dict.fromkeys(seat.role for seat in listening)
        if role not in mode.portless_roles
    }
    return Layout(
        seats, address_by_host, ports, endpoints, mesh, cluster, deciding_tasks(mode, seats)
    )


def _task_listens(mode: ModeRules, seat: Seat) -> bool:
    return seat.role not in mode.portless_roles or (mode.ranks and seat.index == 0)
