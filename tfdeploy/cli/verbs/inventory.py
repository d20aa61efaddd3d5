"""`tfdeploy inventory`: hosts, roles and settings as understood, and where each came from. Contacts
no host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfdeploy import config
from tfdeploy.cli.arguments.inventory import Flags
from tfdeploy.cli.options import env_default
from tfdeploy.cli.output import print_json
from tfdeploy.cli.project import inventory_file, job_here
from tfdeploy.config.reference import HOST
from tfdeploy.errors import TfdeployError
from tfdeploy.model.inventory import settings_of
from tfdeploy.model.selection import select
from tfdeploy.model.text.folding import fold_equal, fold_names
from tfdeploy.ui.tables import show_rows

if TYPE_CHECKING:
    from tfdeploy.config import InventoryFile
    from tfdeploy.model.inventory import Host, Inventory
    from tfdeploy.model.job import Job
    from tfdeploy.model.output.printed import InventoryAnswer, InventoryHostRow


def run(flags: Flags) -> int:
    understood = config.load_inventory_file(inventory_file(flags, _job(flags)))
    inventory = select(understood.inventory, flags.limit, flags.exclude)
    if flags.json:
        print_json(as_json(inventory, understood))
    else:
        _show(flags, inventory, understood)
    return 0


def _job(flags: Flags) -> Job | None:
    """Return the job here, whose file may name the inventory; None if there is none.

    With -i the job file is not read. With TFDEPLOY_INVENTORY it is read only to name the inventory
    that is not used, so errors in it do not matter.
    """
    exported = env_default("inventory")
    if flags.inventory != exported:
        return None
    try:
        return job_here(flags)
    except TfdeployError:
        if exported is None:
            raise
        return None


def as_json(inventory: Inventory, understood: InventoryFile) -> InventoryAnswer:
    """{"inventory", "hosts": [its settings, "roles", "source", "from": {key: place}], "roles":
    {role: [names]}}.

    A setting that is missing in "from" is not in the file.
    """
    hosts: list[InventoryHostRow] = []
    for host in inventory.hosts:
        known = {key: origin(understood, host, key) for key in understood.given[host.name]}
        row: Any = {**settings_of(host), "roles": _roles_of(host.name, inventory), "from": known}
        hosts.append(row)
    return {"inventory": inventory.source, "hosts": hosts, "roles": inventory.roles}


def origin(understood: InventoryFile, host: Host, key: str) -> str | None:
    """file:line of the setting, with " (defaults)" where it is set under `defaults:`; None: not in
    the file."""
    given = understood.given[host.name].get(key)
    if given is None:
        return None
    return given.node.place + (" (defaults)" if given.node.path.startswith("defaults.") else "")


def _roles_of(name: str, inventory: Inventory) -> list[str]:
    return [role for role, names in inventory.roles.items() if name in names]


def _show(flags: Flags, inventory: Inventory, understood: InventoryFile) -> None:
    terminal = flags.out
    hosts = [
        (host.name, host.address, ",".join(_roles_of(host.name, inventory)), host.source)
        for host in inventory.hosts
    ]
    show_rows(terminal, ("host", "address", "roles", "from"), hosts)
    terminal.write("\n")
    if inventory.roles:
        rows = [(role, len(names), fold_names(names)) for role, names in inventory.roles.items()]
        show_rows(terminal, ("role", "hosts", "names"), rows)
    else:
        terminal.write("no roles: write `roles:` to say which hosts are ps and worker\n")
    terminal.write("\n")
    show_rows(terminal, ("setting", "value", "hosts", "from"), setting_rows(inventory, understood))
    terminal.write("\nWhat is left out, ~/.ssh/config and ssh's own defaults decide.\n")


def setting_rows(
    inventory: Inventory, understood: InventoryFile
) -> list[tuple[str, str, str, str]]:
    """(setting, value, folded hosts, where from): a row for each value from each place, in the
    reference's order."""
    rows = []
    for key in HOST:
        if key.name == "address":
            continue
        seen = {
            host.name: (
                _words(key.name, getattr(host, key.name)),
                origin(understood, host, key.name),
            )
            for host in inventory.hosts
        }
        for names, (value, place) in fold_equal(seen):
            which = "all" if len(names) == len(inventory.hosts) else fold_names(names)
            rows.append((key.name, value, which, place or f"left out: {key.default}"))
    return rows


def _words(key: str, value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, tuple):
        return ("-" if key == "ports" else ",").join(map(str, value))
    return str(value)
