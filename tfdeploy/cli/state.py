"""Find the state folder on this machine, and open the store of runs in it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from tfdeploy.errors import Refused
from tfdeploy.store.places import refuse_exposed_state_root, state_root

if TYPE_CHECKING:
    from tfdeploy.model.inventory import Inventory
    from tfdeploy.model.plan import Plan
    from tfdeploy.store.names import Kind
    from tfdeploy.store.runs import RunStore


def state_folder() -> Path:
    """Return the state folder. Raises Refused if another user of this machine can change it."""
    root = state_root(os.environ)
    _check_state_root(root)
    return root


def tree_cache_folder() -> Path:
    """Return the folder in which one command stores hashes of code and wheels for the next one."""
    return state_folder() / "trees"


_check_state_root = lru_cache(maxsize=1)(refuse_exposed_state_root)


def open_run_store() -> RunStore:
    """Return the store of the runs that this machine has recorded."""
    from tfdeploy.store.runs import RunStore

    return RunStore(state_folder())


def remember_inventory(inventory: Inventory) -> None:
    """Store the names of hosts and roles, so that the shell can complete them in this folder."""
    store_completion_names(
        {"hosts": [host.name for host in inventory.hosts], "roles": inventory.roles}
    )


def remember_plan(plan: Plan) -> None:
    """Store the run and the names of its tasks, so that the shell can complete them in this
    folder."""
    store_completion_names({"tasks": [task.task for task in plan.tasks]})
    store_completion_names({"runs": [plan.run]}, keep_stored_names=True)


def store_completion_names(
    names: Mapping[Kind, Iterable[str]], *, keep_stored_names: bool = False
) -> None:
    """Store names that the shell can complete in this folder. Do nothing if the state folder cannot
    be used.

    `keep_stored_names`: True to keep the names that are stored already.
    """
    from tfdeploy.store.names import store_completion_names as remember

    with suppress(Refused, OSError):
        root, folder = state_folder(), Path.cwd()
        for kind, each in names.items():
            remember(root, folder, kind, each, keep_stored_names=keep_stored_names)
