"""Checkpoints of ParameterServerStrategy without a shared disk: the chief writes and reads all of
them itself.

Cause: tf.train.Checkpoint saves each variable from the host that it lives on, so a ps writes its
part to its own disk, in a folder that exists only on the chief: "checkpoints/ckpt-250_temp; No such
file or directory" (tensorflow/python/checkpoint/functional_saver.py). The option
experimental_io_device is meant for that; where the program gives none, it is the chief.
"""

from __future__ import annotations

from typing import Any

from . import task
from .wrapping import set_default

CHIEF = "/job:chief/task:0/device:CPU:0"


def apply(checkpoint_options: Any) -> None:
    """`checkpoint_options`: the module tensorflow.python.checkpoint.checkpoint_options."""
    if task.has("chief_saves") and task.role() == "chief":
        set_default(checkpoint_options.CheckpointOptions, "experimental_io_device", CHIEF)
