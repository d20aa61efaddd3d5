"""Define hosts as the inventory names them. Values only: nothing here reads a file or opens a
socket."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}\Z")  # hosts, jobs, runs, roles, data sets
DEFAULT_PORTS = (2222, 2299)
DEFAULT_WORKDIR = "~/tfdeploy"


@dataclass(frozen=True)
class Host:
    """One machine. None means "left out": ~/.ssh/config, then OpenSSH's own defaults, decide."""

    name: str
    address: str  # "": this machine does not know where it is
    port: int | None = None
    user: str | None = None
    identity_file: str | None = None
    known_hosts: str | None = None
    jump: str | None = None  # ProxyJump's form: [user@]host[:port], several with commas
    python: str = "python3"
    workdir: str = DEFAULT_WORKDIR
    ports: tuple[int, int] = DEFAULT_PORTS  # both ends included
    gpus: Literal["auto", "none"] | int | tuple[int, ...] = "auto"
    advertise: str | None = None
    bwlimit: int | None = None  # bytes a second in each direction, of all that tfdeploy moves there
    reserve: int = 0  # bytes that a sync leaves free on the workdir's disk
    source: str = ""  # file:line
    places: Mapping[str, str] = field(default_factory=dict, compare=False)  # setting -> file:line

    def setting(self, key: str) -> str:
        """Return `key:` with its file and line, or with the file alone where it is left out. For
        messages.

        Equal texts of many hosts are shown once, so a setting of `defaults:` has one place for all
        of them.
        """
        place = self.places.get(key) or self.source.rpartition(":")[0]
        return f"`{key}:` ({place})" if place else f"`{key}:`"


def settings_of(host: Host) -> dict[str, Any]:
    """Return the fields of a host but `places`, which no host and no reader of JSON needs."""
    return {name: value for name, value in asdict(host).items() if name != "places"}


@dataclass(frozen=True)
class Inventory:
    """Hosts in the file's order, and which of them each role may use (host names, in order)."""

    hosts: tuple[Host, ...]
    roles: dict[str, tuple[str, ...]] = field(default_factory=dict)
    source: str = ""

    def host(self, name: str) -> Host:
        """Return the host of that name. Raises KeyError."""
        return {host.name: host for host in self.hosts}[name]
