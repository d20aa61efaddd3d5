"""Checkpoints without a shared disk: the task that saves writes the whole checkpoint itself.

Cause: a sharded Saver places its save operations on the parameter servers, so each writes its shard
to its own disk, in a folder that exists only on the chief: `NotFoundError: From /job:ps/...:
model.ckpt-0_temp`. MonitoredTrainingSession's default saver is sharded (`_get_saver_or_default` in
tensorflow/python/training/saver.py, `Scaffold.finalize` in monitored_session.py). Without sharding
the values come over gRPC and one process writes them. Old sharded checkpoints can still be
restored.
"""

from __future__ import annotations

import threading
from typing import Any

from . import task
from .wrapping import around

SAID = (
    "Saver(sharded=True) would leave each shard on the disk of its own parameter server, where "
    "nobody can put them "
    "together: the chief saves the whole checkpoint instead"
)


def apply(saver: Any) -> None:
    """`saver`: the module tensorflow.python.training.saver."""
    ours = threading.local()  # set while TensorFlow makes its own default: not the program's choice

    @around(saver.Saver, "_build")
    def build_whole(build: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        # a saver_def's operations are in the graph already
        if not self._sharded or self.saver_def is not None:
            return build(self, *args, **kwargs)
        self._sharded = False
        if task.index() == 0 and not getattr(ours, "default", False):
            task.say(SAID)
        # sharding ignored the program's device scope, which may be a GPU
        with saver.ops.device(None):
            return build(self, *args, **kwargs)

    @around(saver, "_get_saver_or_default")
    def whole_default(default: Any) -> Any:
        ours.default = True
        try:
            return default()
        finally:
            ours.default = False
