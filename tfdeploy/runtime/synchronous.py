"""Whether this process trains synchronously: the job says so, or the program made a
SyncReplicasOptimizer."""

from __future__ import annotations

from typing import Any

from . import left_behind, task
from .wrapping import after_init

_seen: list[bool] = []  # one entry once the optimizer exists


def is_synchronous() -> bool:
    return task.has("synchronous") or bool(_seen)


def apply(sync_replicas_optimizer: Any) -> None:
    """`sync_replicas_optimizer`: the module tensorflow.python.training.sync_replicas_optimizer."""
    after_init(sync_replicas_optimizer.SyncReplicasOptimizer, _notice)


def _notice(_optimizer: Any) -> None:
    if not _seen:
        _seen.append(True)
        left_behind.install()
