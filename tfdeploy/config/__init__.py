"""Files -> values: inventories and job files, with file:line:key in every error. Opens no socket, prints nothing."""

from tfdeploy.config.inventory import InventoryFile, find_inventory, load_inventory, load_inventory_file
from tfdeploy.config.job import check_command, check_sources, find_job, load_job, with_via
from tfdeploy.config.ownership import ownership_warning
from tfdeploy.config.secret_values import read_secrets, refuse_shown_secrets

__all__ = [
    "InventoryFile",
    "check_command",
    "check_sources",
    "find_inventory",
    "find_job",
    "load_inventory",
    "load_inventory_file",
    "load_job",
    "ownership_warning",
    "read_secrets",
    "refuse_shown_secrets",
    "with_via",
]
