"""The state folder on this machine, and the store of runs in it."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from tfdeploy.store.places import check_state_root, state_root

if TYPE_CHECKING:
    from tfdeploy.store.runs import RunStore


def state_folder() -> Path:
    """The state folder. Raises Refused where another user of this machine can change what is in
    it."""
    root = state_root(os.environ)
    _check_state_root(root)
    return root


def tree_cache_folder() -> Path:
    """Where the listings of code and data are kept from one command to the next."""
    return state_folder() / "trees"


_check_state_root = lru_cache(maxsize=1)(check_state_root)


def open_run_store() -> RunStore:
    from tfdeploy.store.runs import RunStore

    return RunStore(state_folder())
