"""Define the JSON between a lab and `boot`, the process that starts its hosts."""

from __future__ import annotations

from typing import TypedDict


class Plug(TypedDict):
    """One link between a namespace and the switch.

    `interface`: its end in the namespace of the host, operator or router. `name`: its other end, on
    a bridge of the switch.
    """

    name: str
    interface: str
    bridge: str
    rate: str | None  # bandwidth from the switch, as tc writes it; None: no limit
    up: bool


class NetworkOrder(TypedDict, total=False):
    """A namespace without a host: the switch, the operator's network, or the router."""

    bridges: list[str]  # lines of an `ip` batch that run before the links exist
    plugs: list[Plug]
    ip: list[str]  # lines of an `ip` batch that run once the links exist
    tc: list[str]
    forwards: bool  # forward packets from one link to another


class DiskOrder(TypedDict):
    """A host's own root over `rootfs`. Paths are those of this machine."""

    rootfs: str
    folder: str
    user: str
    uid: int
    shell: str
    hosts_file: str  # lines of /etc/hosts that name the hosts
    read_only: list[str]
    shared: str | None
    files: dict[str, str]  # {path on the host: path on this machine}


class HostOrder(TypedDict):
    name: str
    disk: DiskOrder | None  # None: the host shares this machine's root and network
    console: str
    pid_file: str
    sshd: list[str]
    reserved: int | None  # loopback: the file descriptor that holds the host's block of ports
    ip: list[str]  # lines of an `ip` batch
    tc: list[str]
    plugs: list[Plug]


class Order(TypedDict):
    root: str
    networks: dict[str, NetworkOrder]
    switch: int | None  # pid of the switch, if it runs already
    hosts: list[HostOrder]


class Outcome(TypedDict):
    pids: dict[str, int]  # name of a network or host -> its first process
    errors: dict[str, str]  # name -> why it did not start


def reserved_descriptors(hosts: list[HostOrder]) -> list[int]:
    """Return the file descriptors that the hosts inherit, at most one for each host."""
    return [host["reserved"] for host in hosts if host["reserved"] is not None]
