"""`import tensorflow as tf` gives TensorFlow 1: its names, its behaviour, and parts of contrib and
examples.

The module stays the same object and gets the names of its own `compat.v1`. Names that only version
2 has stay, because libraries use them. Only with TFDEPLOY_TASK_COMPAT=v1.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from types import ModuleType
from typing import Any

from . import absent, version0

SUPPLIED = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "supplied")
# Flags of absl that programs of 2016 to 2018 define too; the program's definition counts.
_ABSL_FLAGS = (
    "log_dir",
    "verbosity",
    "alsologtostderr",
    "logtostderr",
    "stderrthreshold",
    "pdb",
    "profile_file",
)
# parts with other names or orders of arguments in TensorFlow 0.x
_PARTS_OF_VERSION0 = ("image", "nn", "train")
_LEGACY = "TF_USE_LEGACY_KERAS"


def before() -> None:
    """Select tf_keras, which alone has tf.layers and tf.nn.rnn_cell since TensorFlow 2.16. The plan
    does so for programs that it can read (planning/versions/legacy_keras.py), not behind a shell
    script."""
    from importlib.util import find_spec

    if _LEGACY not in os.environ and find_spec("tf_keras") is not None:
        os.environ[_LEGACY] = "1"


def apply(tensorflow: Any) -> None:
    """`tensorflow`: the real package, just imported. TensorFlow 1 itself is left alone."""
    version1 = tensorflow.compat.v1
    if tensorflow.__version__.startswith("1."):
        return
    for name in dir(version1):
        if not name.startswith("_"):
            setattr(tensorflow, name, getattr(version1, name))
    tensorflow.__path__.append(SUPPLIED)
    _disable_version2(version1)
    _share_flags()
    for part in _PARTS_OF_VERSION0:
        if hasattr(version1, part):
            setattr(tensorflow, part, _with_version0(part, getattr(version1, part)))
    absent.watch(tensorflow, "")
    version0.accept_old_calls(tensorflow, "")
    absent.install()


def _with_version0(part: str, module: Any) -> Any:
    """A copy of a part of compat.v1 with the names and calls of TensorFlow 0.x; the original stays
    as it is."""
    made = sys.modules["tensorflow." + part] = ModuleType("tensorflow." + part, module.__doc__)
    # `from tensorflow.nn.rnn_cell import GRUCell`
    made.__path__ = list(getattr(module, "__path__", ()))
    made.__spec__ = getattr(module, "__spec__", None)  # importlib.util.find_spec asks for it
    absent.watch(made, part + ".")
    otherwise = vars(made)["__getattr__"]

    def attribute(name: str) -> Any:
        try:
            return getattr(module, name)
        except AttributeError:
            return otherwise(name)

    vars(made).update(__getattr__=attribute, __dir__=partial(dir, module))
    version0.accept_old_calls(made, part + ".")
    return made


def _disable_version2(version1: Any) -> None:
    """Without its deprecation warning, which is not about the user's code."""
    from logging import ERROR, getLogger

    logger = getLogger("tensorflow")
    level = logger.level
    logger.setLevel(ERROR)
    try:
        version1.disable_v2_behavior()
    finally:
        logger.setLevel(level)


def _share_flags() -> None:
    from absl.flags import FLAGS

    for name in _ABSL_FLAGS:
        if name in FLAGS:
            FLAGS[name].allow_override = True
