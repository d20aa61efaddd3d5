"""Reads an inventory, in tfdeploy's own format or another, into an Inventory. Contacts no host."""

from __future__ import annotations

import ipaddress
import os.path
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tfdeploy.config import reference, values
from tfdeploy.config.foreign.host_list import is_host_list
from tfdeploy.config.foreign.recognise import read_inventory_tree
from tfdeploy.config.jobvalues import check_role
from tfdeploy.config.node import Node, nearest_hint
from tfdeploy.config.schema import LocatedValue, read_keys
from tfdeploy.config.search import FolderSearch, FoundFile
from tfdeploy.config.yamlfile import shown_path
from tfdeploy.errors import ConfigError
from tfdeploy.model.inventory import Host, Inventory
from tfdeploy.text.names import MAX_NAMES
from tfdeploy.text.placeholders import fill_placeholders

FOLDER = "inventories"
_LOCAL_PATHS = ("identity_file", "known_hosts")
# The settings of `defaults:` in two dicts. The first has the settings that are equal for all hosts.
# The second has the settings that contain {name}, which stands for each host's name.
_Defaults = tuple[dict[str, LocatedValue], dict[str, Node]]


@dataclass(frozen=True)
class InventoryFile:
    """An inventory, together with the settings of each host as its file states them.

    `settings`: {host: {field of Host: value and location of the setting}}.
    """

    inventory: Inventory
    settings: dict[str, dict[str, LocatedValue]]


def load_inventory(path: Path) -> Inventory:
    """Return the inventory that the file describes. Raises ConfigError."""
    return load_inventory_file(path).inventory


def load_inventory_file(path: Path, *, by_ansible: bool = False) -> InventoryFile:
    """Return the inventory with the location of each setting in the file.

    `by_ansible`: read the file with the program ansible-inventory. Raises ConfigError.
    """
    if by_ansible:
        from tfdeploy.config.foreign.ask_ansible import run_ansible_inventory

        root = run_ansible_inventory(path)
    else:
        root = read_inventory_tree(path)
    top = read_keys(root, reference.INVENTORY)
    if "hosts" not in top or not top["hosts"].value:
        raise root.error("the inventory has no hosts", "write hosts: {n1: {address: 192.0.2.10}}")
    defaults = _read_defaults(top["defaults"].node) if "defaults" in top else ({}, {})
    folder = path.parent.resolve()
    given: dict[str, dict[str, LocatedValue]] = {}
    hosts: dict[str, Host] = {}
    for pattern, node in top["hosts"].value.items():
        for name in values.unfold_names(pattern, node):
            if name in hosts:
                raise node.error(
                    f"host {name} is defined twice: {hosts[name].source} and {node.location}",
                    "remove one of them",
                )
            given[name] = _host_settings(name, defaults, node)
            hosts[name] = _make_host(name, given[name], folder, node.location)
        if len(hosts) > MAX_NAMES:
            raise node.error(f"more than {MAX_NAMES:,} hosts", "split the inventory")
    _refuse_same_machine(hosts, top["hosts"].value)
    roles = _read_roles(top["roles"].value, hosts) if "roles" in top else {}
    return InventoryFile(
        Inventory(tuple(hosts.values()), roles, shown_path(path), tuple(root.notes)), given
    )


def _read_defaults(node: Node) -> _Defaults:
    """Return the settings below the key `defaults:`."""
    varying = {key: child for key, child in node.keys.items() if _has_braces(child)}
    # The defaults are also checked here, not only for each host. Otherwise a wrong default would
    # not be reported if every host overrides it.
    read_keys(_fill_in_name(node.keys, "name", node), reference.HOST)
    fixed = {key: child for key, child in node.keys.items() if key not in varying}
    return read_keys(_fill_in_name(fixed, "", node), reference.HOST), varying


def _host_settings(name: str, defaults: _Defaults, own_settings: Node) -> dict[str, LocatedValue]:
    """Return all settings of the host.

    A setting that `own_settings` lacks gets its value from the key `defaults:`. In each value,
    {name} is replaced by the host's name.
    """
    if own_settings.kind not in ("mapping", "nothing"):
        raise own_settings.wrong_value(
            "a mapping of settings",
            f"write it as {name}: {{address: {own_settings.text or '192.0.2.10'}}}",
        )
    fixed, varying = defaults
    stated = {
        key: node
        for key, node in own_settings.keys.items()
        if node.kind != "nothing" or key not in varying
    }
    return fixed | read_keys(_fill_in_name(varying | stated, name, own_settings), reference.HOST)


def _fill_in_name(keys: dict[str, Node], name: str, location: Node) -> Node:
    """Return a mapping node with these keys, and with {name} replaced by `name` in each value."""
    filled = {
        key: replace(node, text=node.call_at_location(fill_placeholders, node.text, {"name": name}))
        if _has_braces(node)
        else node
        for key, node in keys.items()
    }
    return Node("mapping", location.file, location.line, keys=filled)


def _has_braces(node: Node) -> bool:
    return "{" in node.text or "}" in node.text


def _make_host(
    name: str, setting_by_field: dict[str, LocatedValue], folder: Path, location: str
) -> Host:
    fields = {"address": name, **{field: each.value for field, each in setting_by_field.items()}}
    for field in _LOCAL_PATHS:
        if field in fields and not fields[field].startswith(("/", "~", "%")):
            fields[field] = str(folder / fields[field])
    places = {field: each.node.location for field, each in setting_by_field.items()}
    return Host(name=name, source=location, places=places, **fields)


def _refuse_same_machine(host_by_name: dict[str, Host], node_by_host: dict[str, Node]) -> None:
    """Raise ConfigError if two hosts have the same address, port and jump host.

    They are one machine with two names, and tasks for both would start on it.
    """
    seen: dict[tuple[str, int, str | None], Host] = {}
    for host in host_by_name.values():
        address, port = host.address.lower().rstrip("."), host.port or 22
        if ":" in address:
            address = str(ipaddress.ip_address(host.address))
        other = seen.setdefault((address, port, host.jump), host)
        if other is not host:
            raise ConfigError(
                f"{other.name} ({other.source}) and {host.name} ({host.source}) are one machine: "
                f"{host.address} port {port}",
                where=host.source,
                next="remove one of them, or correct address or port",
            )


def _read_roles(
    node_by_role: dict[str, Node], host_by_name: dict[str, Host]
) -> dict[str, tuple[str, ...]]:
    roles = {}
    for role, node in node_by_role.items():
        check_role(role, node)
        seen: dict[str, Node] = {}
        for name, item in [] if node.kind == "nothing" else values.unfold_name_list(node):
            if name not in host_by_name:
                raise item.error(
                    f"role {role} names {name}, which is no host of this inventory",
                    nearest_hint(name, host_by_name, "the hosts are"),
                )
            if name in seen:
                raise item.error(
                    f"{name} stands twice in role {role}: lines {seen[name].line} and {item.line}",
                    "name it once",
                )
            seen[name] = item
        if not seen:
            raise node.error(
                f"role {role} names no host",
                f"name at least one host: {role}: [{', '.join(list(host_by_name)[-2:])}]",
            )
        roles[role] = tuple(seen)
    return roles


def find_inventory(
    flag: str | None,
    environ: Mapping[str, str],
    job_inventory: str | None,
    cwd: Path,
    job_file: FoundFile | None = None,
) -> FoundFile:
    """Return the inventory file.

    The first of these sources that names an inventory counts: -i, TFDEPLOY_INVENTORY, the key
    `inventory:` of the job file, a folder inventories/ that contains a single inventory. If -j or
    TFDEPLOY_JOB names the job file, the folder inventories/ is searched next to the job file, then
    in `cwd`. Otherwise the folder is searched in `cwd`, then in each folder above `cwd`, up to the
    folder of the job file. Raises ConfigError if no source names an inventory. The error lists the
    possible files.
    """
    folders = _folders_to_search(cwd, job_file)
    choices = next(filter(None, (_yaml_files(folder / FOLDER) for folder in folders)), [])
    # TFDEPLOY_INVENTORY is the default of -i. So if -i has the same value as the variable, the user
    # has probably not given -i, and the variable counts as the source.
    exported = environ.get("TFDEPLOY_INVENTORY")
    given = None if flag == exported else flag
    own = (cwd / os.path.expanduser(job_inventory),) if job_inventory else choices
    sources = (("-i", given), ("$TFDEPLOY_INVENTORY", exported), ("the job file", job_inventory))
    for source, named in sources:
        if named:
            path = cwd / os.path.expanduser(named)
            # Unlike Path.exists, os.path.exists raises no error for names that are too long.
            if not os.path.exists(path):
                if is_host_list(named):
                    return FoundFile(Path(named), named_explicitly=True)
                instead = _suggest_inventories(choices)
                if source == "$TFDEPLOY_INVENTORY":
                    instead = f"`unset TFDEPLOY_INVENTORY`, or {instead}"
                if "/" not in named:
                    instead += f"; if {named} is a host, add a comma: -i {named},"
                raise ConfigError(
                    f"no such inventory (named by {source})", where=shown_path(path), next=instead
                )
            unused = own if source == "$TFDEPLOY_INVENTORY" else ()
            return FoundFile(
                path, named_explicitly=True, unused_inventory=_unused_inventory(path, unused)
            )
    if len(choices) == 1:
        unused_file = _unused_inventory(choices[0], _yaml_files(cwd / FOLDER))
        return FoundFile(choices[0], named_explicitly=False, unused_inventory=unused_file)
    what = f"which inventory? there are {len(choices)} in {FOLDER}/" if choices else "no inventory"
    places = ", ".join(dict.fromkeys(shown_path(folder / FOLDER) for folder in folders))
    where = shown_path(choices[0].parent) if choices else f"looked in {places}"
    raise ConfigError(what, where=where, next=_suggest_inventories(choices))


def _folders_to_search(cwd: Path, job_file: FoundFile | None) -> tuple[Path, ...]:
    """Return the folders in which to search for a folder inventories/, in order of precedence."""
    if job_file is not None and job_file.named_explicitly:
        return tuple(dict.fromkeys((Path(os.path.abspath(job_file.path.parent)), cwd)))
    above = FolderSearch.upwards(cwd).folders
    if job_file is None or job_file.path.parent not in above:
        return above
    return above[: above.index(job_file.path.parent) + 1]


def _yaml_files(folder: Path) -> list[Path]:
    return sorted(
        path
        for path in folder.glob("*.y*ml")
        if path.suffix in (".yaml", ".yml") and path.is_file()
    )


def _unused_inventory(used_path: Path, others: Sequence[Path]) -> Path | None:
    """Return the file of `others` that exists and is ignored, because `used_path` is used instead.

    If several of `others` exist, return their folder. Return None if none of them exists, or if
    `used_path` is one of them.
    """
    present = [other for other in others if other.exists()]
    if any(other.samefile(used_path) for other in present):
        return None
    return next(iter(present), None) if len(present) < 2 else present[0].parent


def _suggest_inventories(choices: list[Path]) -> str:
    names = ", ".join(f"-i {shown_path(path)}" for path in choices[:20])
    none = (
        "name an inventory file or hosts with -i, create test hosts with `tfdeploy lab up 3`, or "
        "write an inventory with `tfdeploy init`"
    )
    return f"give one of: {names}" if names else none
