"""Select hosts of an inventory by `--limit` and `--exclude`. Pure."""

from __future__ import annotations

from dataclasses import replace

from tfdeploy.errors import UsageError
from tfdeploy.model.inventory import Inventory, hosts_named
from tfdeploy.model.text.names import match_names


def select_hosts(inventory: Inventory, limit: str | None, exclude: str | None) -> Inventory:
    """Return the inventory with only the selected hosts, also in its roles. The file's order is
    kept.

    `limit` and `exclude` are patterns of text/names, with roles as groups. Raises UsageError if
    a pattern matches nothing or no host remains.
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
            "no host is left to act on",
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
