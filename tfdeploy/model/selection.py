"""`--limit` and `--exclude`: the hosts of an inventory that they select. Pure."""

from __future__ import annotations

import difflib
from dataclasses import replace
from fnmatch import fnmatchcase

from tfdeploy.errors import UsageError
from tfdeploy.model.folding import fold_names
from tfdeploy.model.inventory import Inventory
from tfdeploy.model.ranges import is_range, split_list, unfold


def select(inventory: Inventory, limit: str | None, exclude: str | None) -> Inventory:
    """The inventory with only the selected hosts, also in its roles, in the file's order.

    Patterns, separated by commas: a host, a range n[01-16], a shell pattern n*, a role's name (a host of
    that name wins). Raises UsageError: a pattern that matches nothing, or no host left.
    """
    names = {host.name for host in inventory.hosts}
    if limit is not None:
        names &= _matched(inventory, limit, "--limit")
    if exclude is not None:
        names -= _matched(inventory, exclude, "--exclude")
    if not names:
        raise UsageError("no host is left to act on", where=_flags(limit, exclude), next="tfdeploy inventory lists the hosts")
    hosts = tuple(host for host in inventory.hosts if host.name in names)
    roles = {role: tuple(name for name in members if name in names) for role, members in inventory.roles.items()}
    return replace(inventory, hosts=hosts, roles=roles)


def _matched(inventory: Inventory, patterns: str, flag: str) -> set[str]:
    parts = split_list(patterns)
    if not parts:
        raise UsageError("an empty pattern", where=f"{flag} {patterns!r}", next=f"{flag} n1,gpu[03-10],worker,n*")
    found: set[str] = set()
    for part in parts:
        matched = _match(inventory, part)
        if not matched:
            raise UsageError(f"{part!r} matches no host", where=f"{flag} {patterns}", next=_hint(inventory, part))
        found |= matched
    return found


def _match(inventory: Inventory, pattern: str) -> set[str]:
    names = [host.name for host in inventory.hosts]
    if pattern in names:
        return {pattern}
    if pattern in inventory.roles:
        return set(inventory.roles[pattern])
    wanted = set(unfold(pattern)) if is_range(pattern) else {pattern}
    globs = [text for text in wanted if set(text) & set("*?[")]
    return {name for name in names if name in wanted or any(fnmatchcase(name, text) for text in globs)}


def _hint(inventory: Inventory, pattern: str) -> str:
    names = [host.name for host in inventory.hosts]
    near = difflib.get_close_matches(pattern, [*names, *inventory.roles], n=1)
    return f"did you mean {near[0]}?" if near else f"the hosts are {fold_names(names)}"


def _flags(limit: str | None, exclude: str | None) -> str:
    return " ".join(f"{flag} {text}" for flag, text in (("--limit", limit), ("--exclude", exclude)) if text is not None)
