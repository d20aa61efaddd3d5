"""What a lab offers, whatever it is made of. Tests and the command line see this and `tfdeploy.errors`, never how it is done."""

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
        """The words that run argv as the operator: isolated, from a network that reaches the hosts and nothing else."""
        ...

    def on(self, host: str, argv: Sequence[str], *, root: bool = False) -> list[str]:
        """The words that run argv on a host without SSH, as the host's user, in its home. `root`: isolated only."""
        ...

    def console(self, host: str) -> str:
        """What the host's sshd has said since its first boot."""
        ...

    def cut(self, host: str) -> None:
        """Takes the host off the network until `heal`. Raises UsageError on loopback."""
        ...

    def heal(self, host: str) -> None: ...

    def kill(self, host: str) -> None:
        """Power off, at once: no process of the host is left, nothing is said to its peers. Its disk stays."""
        ...

    def boot(self, host: str) -> None:
        """Power on: same disk, same address, same keys. A host that is on stays as it is."""
        ...

    def down(self) -> None:
        """Removes every process, namespace, mount and file of the lab."""
        ...

    def status(self) -> list[HostStatus]:
        """One row per host."""
        ...
