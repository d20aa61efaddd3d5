"""Define hosts as the inventory names them, and select hosts by `--limit` and `--exclude`. This
module reads no file and opens no socket."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from tfdeploy.errors import UsageError
from tfdeploy.text.names import match_names

DEFAULT_PORTS = (2222, 2299)
DEFAULT_WORKDIR = "~/tfdeploy"


@dataclass(frozen=True)
class Host:
    """One machine. If the inventory does not set one of the settings of SSH, such as `user`, its
    field is None; then ~/.ssh/config applies, or else the default of OpenSSH."""

    name: str
    address: str  # "" if this machine does not know the address
    port: int | None = None
    user: str | None = None
    identity_file: str | None = None
    known_hosts: str | None = None
    # The jump hosts, written as in ssh's ProxyJump: [user@]host[:port], with commas between several
    # hosts.
    jump: str | None = None
    python: str = "python3"
    workdir: str = DEFAULT_WORKDIR
    ports: tuple[int, int] = DEFAULT_PORTS  # both ends included
    gpus: Literal["auto", "none"] | int | tuple[int, ...] = "auto"
    # how many workers run on the host, in modes that take this number from the inventory
    slots: int | None = None
    advertise: str | None = None
    # The limit, in bytes a second and direction, for all transfers of tfdeploy with this host.
    bwlimit: int | None = None
    reserve: int = 0  # bytes that a sync leaves free on the workdir's disk
    source: str = ""  # file:line of the host's entry in the inventory
    # {setting: file:line that sets it}
    places: Mapping[str, str] = field(default_factory=dict, compare=False)

    def setting_with_place(self, key: str) -> str:
        """Return `key:` with the file and line that set it, for messages. If the inventory does not
        set the key, return `key:` with only the file.

        A setting of `defaults:` has the same file and line for all hosts. So the messages of these
        hosts are equal and can be shown once.
        """
        location = self.places.get(key) or self.source.rpartition(":")[0]
        return f"`{key}:` ({location})" if location else f"`{key}:`"


Hosts = tuple[Host, ...]
HostsByName = Mapping[str, Host]


def hosts_named(hosts: Hosts, names: Container[str]) -> Hosts:
    """Return those of `hosts` whose names are in `names`. The order of `hosts` is kept."""
    return tuple(host for host in hosts if host.name in names)


def hosts_except(hosts: Hosts, names: Container[str]) -> Hosts:
    """Return those of `hosts` whose names are not in `names`. The order of `hosts` is kept."""
    return tuple(host for host in hosts if host.name not in names)


def settings_of(host: Host) -> dict[str, Any]:
    """Return the host's fields except `places`. Neither hosts nor readers of JSON need `places`."""
    return {name: value for name, value in asdict(host).items() if name != "places"}


def ssh_settings_of(host: Host) -> dict[str, Any]:
    """Return the settings of a host of the inventory as JSON values. These have lists instead of
    tuples, so that a plan is the same after a round trip through JSON. The settings may contain
    paths on this machine that are not valid UTF-8."""
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in settings_of(host).items()
    }


@dataclass(frozen=True)
class Inventory:
    """The hosts in the file's order, and for each role the names of the hosts on which its tasks
    may run, in order."""

    hosts: Hosts
    roles: dict[str, tuple[str, ...]] = field(default_factory=dict)
    source: str = ""
    notes: tuple[str, ...] = ()  # texts about settings in the file that have no effect

    def host(self, name: str) -> Host:
        """Return the host of that name. Raises KeyError."""
        return {host.name: host for host in self.hosts}[name]


def select_hosts(inventory: Inventory, limit: str | None, exclude: str | None) -> Inventory:
    """Return the inventory with only the selected hosts. Hosts that are not selected are also
    removed from the roles. The file's order is kept.

    `limit` and `exclude` are patterns as text/names.py defines them; the name of a role stands for
    the role's hosts. Raises UsageError if a pattern matches nothing or no host remains.
    """
    names = {host.name for host in inventory.hosts}
    if limit is not None:
        names &= _match_hosts(inventory, limit, "--limit")
    if exclude is not None:
        names -= _match_hosts(inventory, exclude, "--exclude")
    if not names:
        given = [
            f"{flag} {text}"
            for flag, text in (("--limit", limit), ("--exclude", exclude))
            if text is not None
        ]
        raise UsageError(
            "no host is selected",
            where=" ".join(given),
            next="`tfdeploy inventory` lists the hosts",
        )
    hosts = hosts_named(inventory.hosts, names)
    roles = {
        role: tuple(name for name in members if name in names)
        for role, members in inventory.roles.items()
    }
    return replace(inventory, hosts=hosts, roles=roles)


def _match_hosts(inventory: Inventory, patterns: str, flag: str) -> set[str]:
    return match_names(
        patterns, [host.name for host in inventory.hosts], inventory.roles, flag=flag, kind="host"
    )
