"""Whether this process trains synchronously: the job says so, or the program made a SyncReplicasOptimizer."""

from __future__ import annotations

import functools
from typing import Any

from . import left_behind, task

_seen: list[bool] = []  # one entry once the optimizer exists


def is_synchronous() -> bool:
    return task.has("synchronous") or bool(_seen)


def apply(sync_replicas_optimizer: Any) -> None:
    """`sync_replicas_optimizer`: the module tensorflow.python.training.sync_replicas_optimizer."""
    optimizer = sync_replicas_optimizer.SyncReplicasOptimizer
    init = optimizer.__init__

    @functools.wraps(init)
    def noticed(self: Any, *args: Any, **kwargs: Any) -> None:
        if not _seen:
            _seen.append(True)
            left_behind.install()
        init(self, *args, **kwargs)

    optimizer.__init__ = noticed
