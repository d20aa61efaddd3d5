"""List the patches for each module that a program may import.

A patch is a module of this package with a function `patch_module(module)`, which is called right
after the import. A patch may also have a function `before_import()`, which is called before the
import. Classes are changed in place, so that the change applies to every name under which
TensorFlow exports them.
"""

from __future__ import annotations

from . import task

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Tuple

_ALWAYS: Dict[str, str] = {
    "numpy": "old_names.numpy_names",
    "shutil": "kept_folders",
    "tensorflow.python.lib.io.file_io": "kept_folders",
    "tensorflow.python.platform.app": "old_names.shared_flags",
    "tensorflow.python.training.saver": "whole_checkpoints",
    "tensorflow.python.training.sync_replicas_optimizer": "synchronous no_more_tokens",
    "tensorflow.python.training.coordinator": "prompt_end",
    "tensorflow.python.training.server_lib": "patient_ps blocked_step",
    "tensorflow.python.training.session_manager": "prompt_start",
    "tensorflow.python.client.session": (
        "retried_step device_filters planned_target patient_ps no_more_tokens"
    ),
    "tensorflow.python.checkpoint.checkpoint_options": "own_disk",
}
_PLANNED_CLUSTER: Dict[str, str] = {
    "socket": "own_host",
    "tensorflow.python.training.server_lib": "planned_cluster",
    "tensorflow.python.distribute.cluster_resolver.tfconfig_cluster_resolver": "planned_tf_config",
}
# The modules of tf.contrib that the folder supplied/contrib has.
_CONTRIB = ("framework", "layers", "learn", "lookup", "losses", "metrics", "training")
_VERSION1: Dict[str, str] = {
    "tensorflow": "old_names.version1",
    "tensorflow.python.ops.rnn": "old_names.dropped",
    "tensorflow.python.platform.flags": "old_names.dropped",
    "tensorflow.python.training.sync_replicas_optimizer": "old_names.dropped",
    "tf_keras.src.layers.rnn.legacy_cells": "old_names.dropped",
    "tensorflow.contrib": "old_names.absent",
    **{"tensorflow.contrib." + part: "old_names.supply old_names.absent" for part in _CONTRIB},
    "tensorflow.examples": "old_names.absent",
    "tensorflow.examples.tutorials": "old_names.absent",
    "tensorflow.examples.tutorials.mnist": "old_names.absent",
}


def patches_by_module() -> Dict[str, Tuple[str, ...]]:
    """Return a mapping from module names to the names of the patches that this task needs."""
    tables = [
        _ALWAYS,
        *([_PLANNED_CLUSTER] if task.replaces_program_cluster() else []),
        *([_VERSION1] if task.is_version1() else []),
    ]
    patches_by_name: Dict[str, Tuple[str, ...]] = {}
    for table in tables:
        for name, patches in table.items():
            patches_by_name[name] = patches_by_name.get(name, ()) + tuple(patches.split())
    return patches_by_name
