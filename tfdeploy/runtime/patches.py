"""Which module of TensorFlow is mended by which module of this package, right after its import.

Each patch has one function `apply(module)`. The classes are changed in place, so that every name under
which TensorFlow exports them sees the change.
"""

from __future__ import annotations

BY_MODULE = {
    "tensorflow.python.training.saver": "whole_checkpoints",
    "tensorflow.python.training.sync_replicas_optimizer": "synchronous",
    "tensorflow.python.training.coordinator": "prompt_end",
    "tensorflow.python.training.session_manager": "prompt_start",
    "tensorflow.python.client.session": "device_filters",
}
