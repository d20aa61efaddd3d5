"""The JSON between a lab and the process that starts its hosts; see `boot`."""

from __future__ import annotations

from typing import TypedDict


class Plug(TypedDict):
    """A link: `interface` in the namespace of its host (or operator, router), the other end `name` on a bridge of the switch."""

    name: str
    interface: str
    bridge: str
    rate: str | None  # as tc writes it, for what the switch sends
    up: bool


class NetworkOrder(TypedDict):
    """A namespace without a host: the switch, the operator's end, the router. Lines of `ip` and `tc` batches."""

    ip: list[str]  # before its links are there
    plugs: list[Plug]
    late: list[str]  # after that
    tc: list[str]
    forwards: bool  # packets from one of its links to another


class DiskOrder(TypedDict):
    """A host's own root over `rootfs`. Paths are this machine's."""

    rootfs: str
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
    reserved: int | None  # the file descriptor that holds its ports' block; missing until it is held
    ip: list[str]  # only of an isolated host, as `tc`
    tc: list[str]
    plugs: list[Plug]


class Order(TypedDict):
    root: str
    networks: dict[str, NetworkOrder]
    switch: int | None  # the pid of the switch that runs already
    hosts: list[HostOrder]
    kept: list[int]  # file descriptors that hosts inherit


class Outcome(TypedDict):
    pids: dict[str, int]  # name of a network or host -> its first process
    errors: dict[str, str]  # name -> why it did not start
