"""Files -> values: inventories and job files, with file:line:key in every error. Opens no socket, prints nothing."""

from tfdeploy.config.inventory import Understood, find_inventory, load_inventory, understand
from tfdeploy.config.job import check_command, find_job, load_job, read_secrets, refuse_shown
from tfdeploy.config.ownership import mistrust

__all__ = [
    "Understood",
    "check_command",
    "find_inventory",
    "find_job",
    "load_inventory",
    "load_job",
    "mistrust",
    "read_secrets",
    "refuse_shown",
    "understand",
]
