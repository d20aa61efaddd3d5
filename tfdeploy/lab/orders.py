"""Define the JSON that a lab exchanges with `boot.py`, the program that starts its hosts."""

from __future__ import annotations

from typing import TypedDict


class Plug(TypedDict):
    """One link between a namespace and the switch.

    `interface`: the name of the link's end in the namespace of a host, the operator or the router.
    `name`: the name of the link's other end, which is on a bridge of the switch.
    """

    name: str
    interface: str
    bridge: str
    rate: str | None  # bandwidth of traffic from the switch, as tc writes it; None: no limit
    up: bool


class NetworkOrder(TypedDict, total=False):
    """A request to create the network namespace of the switch, the operator or the router."""

    bridges: list[str]  # lines of an `ip` batch that run before the links exist
    plugs: list[Plug]
    ip: list[str]  # lines of an `ip` batch that run once the links exist
    tc: list[str]
    forwards: bool  # True to forward packets from one link to another


class DiskOrder(TypedDict):
    """The root file system of one host, an overlay over `rootfs`.

    All paths are paths of this machine, except `shell` and the keys of `files`.
    """

    rootfs: str
    folder: str
    user: str
    uid: int
    shell: str
    hosts_file: str  # lines of /etc/hosts that name all hosts
    read_only: list[str]
    shared: str | None
    files: dict[str, str]  # {path on the host: path on this machine}


class HostOrder(TypedDict):
    name: str
    disk: DiskOrder | None  # None: the host shares this machine's root and network
    console: str
    pid_file: str
    sshd: list[str]
    reserved: int | None  # loopback labs: the file descriptor that holds the host's block of ports
    ip: list[str]  # lines of an `ip` batch that run once the links exist
    tc: list[str]
    plugs: list[Plug]


class Order(TypedDict):
    root: str
    networks: dict[str, NetworkOrder]
    # The pid of the switch's process. None: this order starts the switch, or the lab is a loopback
    # lab, which has no switch.
    switch: int | None
    hosts: list[HostOrder]


class Outcome(TypedDict):
    pids: dict[str, int]  # {name of a network or host: pid of its first process}
    errors: dict[str, str]  # {name of a network or host: why it did not start}


def reserved_descriptors(hosts: list[HostOrder]) -> list[int]:
    """Return the file descriptors with which the hosts hold their blocks of ports."""
    return [host["reserved"] for host in hosts if host["reserved"] is not None]
