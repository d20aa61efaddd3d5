"""Run `tfdeploy inventory`: print hosts, roles and settings, and the file and line of each setting.

The verb contacts no host.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfdeploy import config
from tfdeploy.cli.arguments.inventory import Flags
from tfdeploy.cli.options import env_default
from tfdeploy.cli.output import print_json
from tfdeploy.cli.project import (
    find_and_print_inventory_file,
    load_job_if_any,
    print_inventory_warnings,
)
from tfdeploy.cli.state import remember_inventory
from tfdeploy.config.reference import HOST
from tfdeploy.config.templates import quoted, roles_text, settings_as_yaml
from tfdeploy.errors import TfdeployError
from tfdeploy.model.inventory import select_hosts, settings_of
from tfdeploy.text.names import fold_names, group_equal
from tfdeploy.ui.tables import show_rows

if TYPE_CHECKING:
    from tfdeploy.config import InventoryFile
    from tfdeploy.model.inventory import Host, Inventory
    from tfdeploy.model.job import Job
    from tfdeploy.model.output.printed import InventoryAnswer, InventoryHostRow


def run(flags: Flags) -> int:
    path = find_and_print_inventory_file(flags, _load_job_for_inventory(flags))
    file = config.load_inventory_file(path, by_ansible=flags.source == "ansible")
    remember_inventory(file.inventory)
    inventory = select_hosts(print_inventory_warnings(file.inventory), flags.limit, flags.exclude)
    if flags.json:
        print_json(inventory_as_json(inventory, file))
    elif flags.output == "yaml":
        flags.out.write(format_inventory(inventory, file))
    else:
        _show_inventory(flags, inventory, file)
    return 0


def _load_job_for_inventory(flags: Flags) -> Job | None:
    """Return the job, because its file may name the inventory. Return None if there is no job.

    With -i, the job file is not read. TFDEPLOY_INVENTORY takes precedence over the inventory that
    the job file names, so errors in the job file are ignored if this variable is set.
    """
    exported = env_default("inventory")
    if flags.inventory == exported:
        try:
            return load_job_if_any(flags)
        except TfdeployError:
            if exported is None:
                raise
    return None


def inventory_as_json(inventory: Inventory, file: InventoryFile) -> InventoryAnswer:
    """Return the answer of --json: each host's settings, their lines in the file, and its roles.

    The field "from" has file:line of each setting that the inventory file contains.
    """
    hosts: list[InventoryHostRow] = []
    for host in inventory.hosts:
        known = {key: find_setting_origin(file, host, key) for key in file.settings[host.name]}
        row: Any = {**settings_of(host), "roles": _list_roles(host.name, inventory), "from": known}
        hosts.append(row)
    return {"inventory": inventory.source, "hosts": hosts, "roles": inventory.roles}


def format_inventory(inventory: Inventory, file: InventoryFile) -> str:
    """Return the hosts and roles in the format of inventories/*.yaml.

    Settings that all hosts share are under `defaults`.
    """
    stated = {
        host.name: settings_as_yaml(host, file.settings[host.name]) for host in inventory.hosts
    }
    shared = set.intersection(*(set(settings.items()) for settings in stated.values()))
    lines = ["defaults:", *(f"  {key}: {text}" for key, text in sorted(shared))] if shared else []
    lines.append("hosts:")
    for name, settings in stated.items():
        listed_settings = ", ".join(
            f"{key}: {text}" for key, text in settings.items() if (key, text) not in shared
        )
        lines.append(f"  {quoted(name)}: {{{listed_settings}}}")
    lines += [roles_text(inventory.roles)] if inventory.roles else []
    return "\n".join(lines) + "\n"


def find_setting_origin(file: InventoryFile, host: Host, key: str) -> str | None:
    """Return file:line of a host's setting, or None if the file does not contain the setting.

    " (defaults)" is appended if the setting is under `defaults:`.
    """
    setting = file.settings[host.name].get(key)
    if setting is None:
        return None
    suffix = " (defaults)" if setting.node.path.startswith("defaults.") else ""
    return setting.node.location + suffix


def _list_roles(name: str, inventory: Inventory) -> list[str]:
    return [role for role, names in inventory.roles.items() if name in names]


def _show_inventory(flags: Flags, inventory: Inventory, file: InventoryFile) -> None:
    terminal = flags.out
    hosts = [
        (host.name, host.address, ",".join(_list_roles(host.name, inventory)), host.source)
        for host in inventory.hosts
    ]
    show_rows(terminal, ("host", "address", "roles", "from"), hosts)
    terminal.write("\n")
    if inventory.roles:
        rows = [(role, len(names), fold_names(names)) for role, names in inventory.roles.items()]
        show_rows(terminal, ("role", "hosts", "names"), rows)
    else:
        terminal.write(
            "no roles are set: the first host becomes ps or chief, if the mode has one; all other "
            "hosts become workers\n"
        )
    terminal.write("\n")
    show_rows(terminal, ("setting", "value", "hosts", "from"), list_setting_rows(inventory, file))
    terminal.write("\nSettings that are left out come from ~/.ssh/config and ssh's defaults.\n")


def list_setting_rows(inventory: Inventory, file: InventoryFile) -> list[tuple[str, str, str, str]]:
    """Return a row for each value of each setting: (setting, value, host names, file:line).

    Host names are folded, as in n[1-3]. The settings are in the order of the documentation.
    """
    rows = []
    for key in HOST:
        name = key.name
        if name == "address":
            continue
        values = {
            host.name: (
                _format_setting(name, getattr(host, name)),
                find_setting_origin(file, host, name),
            )
            for host in inventory.hosts
        }
        for names, (value, origin) in group_equal(values):
            host_names = "all" if len(names) == len(inventory.hosts) else fold_names(names)
            rows.append((name, value, host_names, origin or f"left out: {key.default}"))
    return rows


def _format_setting(key: str, value: Any) -> str:
    if isinstance(value, tuple):
        return ("-" if key == "ports" else ",").join(map(str, value))
    return "-" if value is None else str(value)
