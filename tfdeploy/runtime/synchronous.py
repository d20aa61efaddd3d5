"""Find out whether this process trains synchronously: whether the mode of the job is synchronous,
or the program has created a SyncReplicasOptimizer."""

from __future__ import annotations

from typing import Any

from . import left_behind, task
from .wrapping import call_after_init

# The list has one entry once the program has created a SyncReplicasOptimizer.
_has_optimizer: list[bool] = []


def is_synchronous() -> bool:
    return task.has_trait("synchronous") or bool(_has_optimizer)


def patch_module(sync_replicas_optimizer: Any) -> None:
    """Patch the module tensorflow.python.training.sync_replicas_optimizer, so that each new
    SyncReplicasOptimizer is noticed."""
    call_after_init(sync_replicas_optimizer.SyncReplicasOptimizer, _record_and_install_excepthook)


def _record_and_install_excepthook(_optimizer: Any) -> None:
    if not _has_optimizer:
        _has_optimizer.append(True)
        left_behind.install()
