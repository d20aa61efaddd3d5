"""Find out whether this process trains synchronously. It does if the mode of the job is
synchronous, or if the program has created a SyncReplicasOptimizer."""

from __future__ import annotations

from typing import Any

from . import left_behind, task
from .wrapping import after_init

# The list has one entry once the program has created a SyncReplicasOptimizer.
_seen: list[bool] = []


def is_synchronous() -> bool:
    return task.has("synchronous") or bool(_seen)


def apply(sync_replicas_optimizer: Any) -> None:
    """Patch the module tensorflow.python.training.sync_replicas_optimizer, so that each new
    SyncReplicasOptimizer is noticed."""
    after_init(sync_replicas_optimizer.SyncReplicasOptimizer, _notice)


def _notice(_optimizer: Any) -> None:
    if not _seen:
        _seen.append(True)
        left_behind.install()
