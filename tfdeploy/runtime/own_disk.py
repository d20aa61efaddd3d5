"""Checkpoints of ParameterServerStrategy without a shared disk: the chief writes and reads all of them itself.

Cause: tf.train.Checkpoint saves each variable from the host that it lives on, so a ps writes its part to
its own disk, in a folder that exists only on the chief: "checkpoints/ckpt-250_temp; No such file or
directory" (tensorflow/python/checkpoint/functional_saver.py). The option experimental_io_device is meant
for that; where the program gives none, it is the chief.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

from . import task

CHIEF = "/job:chief/task:0/device:CPU:0"


def apply(checkpoint_options: Any) -> None:
    """`checkpoint_options`: the module tensorflow.python.checkpoint.checkpoint_options."""
    if not task.has("chief_saves") or task.role() != "chief":
        return
    cls = checkpoint_options.CheckpointOptions
    init = cls.__init__
    signature = inspect.signature(init)

    @functools.wraps(init)
    def init_here(self: Any, *args: Any, **kwargs: Any) -> None:
        given = signature.bind(self, *args, **kwargs)
        if given.arguments.get("experimental_io_device") is None:
            given.arguments["experimental_io_device"] = CHIEF
        init(*given.args, **given.kwargs)

    cls.__init__ = init_here
