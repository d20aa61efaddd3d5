"""The state of a lab in its folder: one JSON file, replaced as a whole."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tfdeploy.lab.processes import Process

VERSION = 1
FILE = "lab.json"


@dataclass
class HostState:
    name: str
    address: str
    port: int
    ports: tuple[int, int] | None = None
    process: Process | None = None  # the first process of the host
    cut: bool = False
    site: int = 0


@dataclass
class LabState:
    name: str
    kind: str
    hosts: list[HostState]
    python: str
    rate: str | None = None
    shared_workdir: bool = False
    gpus: str | int | None = None
    sites: int = 1
    between: str | None = None  # bandwidth from one site to another
    rootfs: str = "/"  # isolated: the file system that hosts boot from
    networks: dict[str, Process] = field(default_factory=dict)  # isolated: holders of their namespaces


def save(root: Path, state: LabState) -> None:
    fresh = root / f".{FILE}.{os.getpid()}"
    fresh.write_text(json.dumps({"v": VERSION, **asdict(state)}, indent=1))
    fresh.replace(root / FILE)


def _process(raw: dict[str, Any] | None) -> Process | None:
    return Process(**raw) if raw else None


def read(root: Path) -> LabState | None:
    """None: no state there, or the write of the first one was interrupted."""
    try:
        raw = json.loads((root / FILE).read_text())
    except (FileNotFoundError, NotADirectoryError, json.JSONDecodeError):
        return None
    if raw.pop("v") != VERSION:
        return None
    hosts = [
        HostState(**{**host, "ports": tuple(host["ports"]) if host["ports"] else None, "process": _process(host["process"])})
        for host in raw.pop("hosts")
    ]
    networks = {name: Process(**process) for name, process in raw.pop("networks").items()}
    return LabState(hosts=hosts, networks=networks, **raw)
