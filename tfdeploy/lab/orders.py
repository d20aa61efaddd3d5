"""The JSON between a lab and the process that starts its hosts; see `boot`."""

from __future__ import annotations

from typing import TypedDict


class NetworkOrder(TypedDict):
    """A namespace without a host: the switch, or the operator's end. Lines of `ip` and `tc` batches."""

    ip: list[str]  # before its link is there
    late: list[str]  # after that
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
    reserved: int | None  # the file descriptor that holds its ports' block; missing until it is held
    ip: list[str]  # only of an isolated host, as `tc`
    tc: list[str]


class Order(TypedDict):
    root: str
    networks: dict[str, NetworkOrder]
    switch: int | None  # the pid of the switch that runs already
    unplugged: list[str]  # hosts
    rate: str | None
    hosts: list[HostOrder]
    kept: list[int]  # file descriptors that hosts inherit


class Outcome(TypedDict):
    pids: dict[str, int]  # name of a network or host -> its first process
    errors: dict[str, str]  # name -> why it did not start
