"""What a lab asks of the process that starts its hosts, as JSON; see `boot`."""

from __future__ import annotations

from typing import TypedDict


class NetworkOrder(TypedDict):
    """A namespace without a host: the switch, or the operator's end. Lines are words for `ip` and `tc`."""

    ip: list[str]  # before it is plugged in
    late: list[str]  # after
    tc: list[str]


class DiskOrder(TypedDict):
    """A host's own root over this machine's. Paths are this machine's."""

    folder: str
    user: str
    uid: int
    shell: str
    hosts_file: str  # its lines
    read_only: list[str]
    shared: str | None
    files: dict[str, str]  # path on the host -> path here


class _HostOrder(TypedDict):
    name: str
    disk: DiskOrder | None  # None: it shares this machine's root
    console: str
    pid_file: str
    sshd: list[str]


class HostOrder(_HostOrder, total=False):
    reserved: int | None  # the handle that holds its port; missing until that is held
    ip: list[str]  # only of an isolated host, as `tc`
    tc: list[str]


class Order(TypedDict):
    root: str
    networks: dict[str, NetworkOrder]
    switch: int | None  # the pid of one that is there
    unplugged: list[str]  # hosts
    rate: str | None
    hosts: list[HostOrder]
    kept: list[int]  # handles


class Outcome(TypedDict):
    pids: dict[str, int]  # by name, of networks and hosts
    errors: dict[str, str]
