"""Reads inventories and job files, and turns them into values. Every error names its location as
file:line:key.

Opens no socket and prints nothing.
"""

from tfdeploy.config.inventory import (
    InventoryFile,
    find_inventory,
    load_inventory,
    load_inventory_file,
)
from tfdeploy.config.job import (
    check_command_words,
    check_source_hosts,
    find_job,
    find_job_above,
    find_job_at_or_above,
    load_job,
    with_data_via,
)
from tfdeploy.config.search import FoundFile
from tfdeploy.config.secret_values import read_secrets, refuse_shown_secrets

__all__ = [
    "FoundFile",
    "InventoryFile",
    "check_command_words",
    "check_source_hosts",
    "find_inventory",
    "find_job",
    "find_job_above",
    "find_job_at_or_above",
    "load_inventory",
    "load_inventory_file",
    "load_job",
    "read_secrets",
    "refuse_shown_secrets",
    "with_data_via",
]
