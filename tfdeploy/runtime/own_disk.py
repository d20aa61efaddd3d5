"""Let the chief read and write all checkpoints of ParameterServerStrategy, so that no shared disk
is needed.

The problem: tf.train.Checkpoint saves each variable on the host that has the variable. So a ps
writes to its own disk, into a folder that exists only on the chief, and fails:
"checkpoints/ckpt-250_temp; No such file or directory"
(tensorflow/python/checkpoint/functional_saver.py).

The patch sets the option experimental_io_device to the chief. If the program itself sets the
option, its value is kept.
"""

from __future__ import annotations

from typing import Any

from . import task
from .wrapping import set_default_argument

CHIEF = "/job:chief/task:0/device:CPU:0"


def patch_module(checkpoint_options_module: Any) -> None:
    """Patch the module tensorflow.python.checkpoint.checkpoint_options, so that the chief reads and
    writes all checkpoints."""
    if task.has_trait("chief_saves") and task.role() == "chief":
        set_default_argument(
            checkpoint_options_module.CheckpointOptions, "experimental_io_device", CHIEF
        )
