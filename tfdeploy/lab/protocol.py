"""The interface of both kinds of lab. Tests and the command line use only this and `tfdeploy.errors`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, TypedDict


class HostStatus(TypedDict):
    host: str
    address: str
    port: int
    state: str  # up, off, cut
    pid: int | None  # None: it is off
    python: str  # of the training programs


class Carried(TypedDict):
    """Bytes over one link, with their headers."""

    to_bytes: int  # towards the host
    from_bytes: int


class Lab(Protocol):
    """A throw-away cluster on this machine. Every method that takes a host raises UsageError for an unknown one."""

    @property
    def name(self) -> str: ...

    @property
    def kind(self) -> str: ...

    @property
    def root(self) -> Path: ...

    @property
    def inventory(self) -> Path: ...

    @property
    def known_hosts(self) -> Path: ...

    @property
    def hosts(self) -> tuple[str, ...]: ...

    def operator(self, argv: Sequence[str]) -> list[str]:
        """A command line that runs argv as the operator. Isolated: in a network that reaches the hosts and nothing else."""
        ...

    def on(self, host: str, argv: Sequence[str], *, root: bool = False) -> list[str]:
        """A command line that runs argv on a host without SSH, as its user, in its home. `root`: as root; isolated only."""
        ...

    def console(self, host: str) -> str:
        """The last 800 characters that the host's sshd has printed since its first boot."""
        ...

    def cut(self, host: str) -> None:
        """Takes the host off the network until `heal`. Raises UsageError on loopback."""
        ...

    def heal(self, host: str) -> None: ...

    def kill(self, host: str) -> None:
        """Powers the host off at once: its processes are killed and its peers get no packet. Its disk stays."""
        ...

    def boot(self, host: str) -> None:
        """Powers the host on: same disk, same address, same keys. A host that is on stays as it is."""
        ...

    def carried(self) -> dict[str, Carried]:
        """What each link has carried since it was plugged in, by the kernel's counters: those of the hosts that are on, of the
        `operator`, and of `router1`, `router2`... between sites. Raises UsageError on loopback."""
        ...

    def down(self) -> None:
        """Removes every process, namespace, mount and file of the lab."""
        ...

    def status(self) -> list[HostStatus]:
        """One row per host."""
        ...
