"""Find the state folder on this machine, and open the store of runs in it."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from tfdeploy.store.places import check_state_root, state_root

if TYPE_CHECKING:
    from tfdeploy.store.runs import RunStore


def state_folder() -> Path:
    """Return the state folder. Raises Refused if another user of this machine can change it."""
    root = state_root(os.environ)
    _check_state_root(root)
    return root


def tree_cache_folder() -> Path:
    """Return the folder in which one command stores hashes of code and wheels for the next one."""
    return state_folder() / "trees"


_check_state_root = lru_cache(maxsize=1)(check_state_root)


def open_run_store() -> RunStore:
    """Return the store of the runs that this machine has recorded."""
    from tfdeploy.store.runs import RunStore

    return RunStore(state_folder())
