"""Store the state of a lab in its folder: in one JSON file, which is replaced as a whole."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from tfdeploy.agent.host.processes import Identity
from tfdeploy.machine.private_files import write_private_file

FILE = "lab.json"


@dataclass
class HostState:
    """One host of a lab."""

    name: str
    address: str
    port: int
    ports: tuple[int, int] | None = None
    process: Identity | None = None  # the first process of the host; None: the host is off
    cut: bool = False  # True while the host is disconnected from the network
    site: int = 0  # number of the host's site, from 0


@dataclass
class LabState:
    """The settings, hosts and networks of a lab."""

    name: str
    kind: str
    hosts: list[HostState]
    python: str
    rate: str | None  # bandwidth of each link, as tc writes it; None: no limit
    shared_workdir: bool
    gpus: str | int | None
    sites: int
    between: str | None  # bandwidth between a site and the router; None: no limit
    rootfs: str  # isolated labs: the folder of the file system that hosts boot from
    # Isolated labs: {name of a network: the process that holds its namespace}.
    networks: dict[str, Identity] = field(default_factory=dict)


def save(root: Path, state: LabState) -> None:
    """Write the state to the lab's folder. Raises OSError."""
    write_private_file(root / FILE, msgspec.json.encode(state).decode())


def read(root: Path) -> LabState | None:
    """Return the lab's state. Return None if the file is missing, or if another version of tfdeploy
    has written it in another form."""
    try:
        return msgspec.json.decode((root / FILE).read_bytes(), type=LabState)
    except (FileNotFoundError, NotADirectoryError, msgspec.DecodeError):
        return None
