"""Let `import tensorflow as tf` give the names and the behaviour of TensorFlow 1, with parts of
tf.contrib and tf.examples.

The module `tensorflow` remains the same object and gets the names of its `compat.v1`. Names that
only TensorFlow 2 has are kept, because libraries use them. The patch is active only with
TFDEPLOY_TASK_COMPAT=v1.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from types import ModuleType
from typing import Any

from . import absent, version0

SUPPLIED = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "supplied")
# Modules of TensorFlow in which function names or the order of arguments differed in version 0.x.
_PARTS_OF_VERSION0 = ("image", "nn", "train")
_LEGACY = "TF_USE_LEGACY_KERAS"


def before_import() -> None:
    """Select tf_keras, if it is installed. Since TensorFlow 2.16, only tf_keras has tf.layers and
    tf.nn.rnn_cell.

    The planner also selects tf_keras, for programs whose source it can read
    (planning/versions/legacy_keras.py), but not for programs that a shell script starts."""
    from importlib.util import find_spec

    if _LEGACY not in os.environ and find_spec("tf_keras") is not None:
        os.environ[_LEGACY] = "1"


def patch_module(tensorflow: Any) -> None:
    """Patch the package tensorflow right after its import. A real TensorFlow 1 is not changed."""
    version1 = tensorflow.compat.v1
    if tensorflow.__version__.startswith("1."):
        return
    for name in dir(version1):
        if not name.startswith("_"):
            setattr(tensorflow, name, getattr(version1, name))
    tensorflow.__path__.append(SUPPLIED)
    _disable_version2(version1)
    for part in _PARTS_OF_VERSION0:
        if hasattr(version1, part):
            setattr(tensorflow, part, _copy_with_version0(part, getattr(version1, part)))
    absent.handle_missing_names(tensorflow, "")
    version0.accept_old_calls(tensorflow, "")
    absent.install()


def _copy_with_version0(part: str, module: Any) -> Any:
    """Return a copy of a module of compat.v1. The copy also has the names of TensorFlow 0.x, and
    its functions accept arguments as in TensorFlow 0.x. The original module is not changed."""
    copy = sys.modules["tensorflow." + part] = ModuleType("tensorflow." + part, module.__doc__)
    # `from tensorflow.nn.rnn_cell import GRUCell` needs the attribute __path__.
    copy.__path__ = list(getattr(module, "__path__", ()))
    # importlib.util.find_spec needs the attribute __spec__.
    copy.__spec__ = getattr(module, "__spec__", None)
    absent.handle_missing_names(copy, part + ".")
    otherwise = vars(copy)["__getattr__"]

    def attribute(name: str) -> Any:
        try:
            return getattr(module, name)
        except AttributeError:
            return otherwise(name)

    vars(copy).update(__getattr__=attribute, __dir__=partial(dir, module))
    version0.accept_old_calls(copy, part + ".")
    return copy


def _disable_version2(version1: Any) -> None:
    """Disable the behaviour of TensorFlow 2. The deprecation warning of `disable_v2_behavior` is
    hidden, because it does not concern the user's code."""
    from logging import ERROR, getLogger

    logger = getLogger("tensorflow")
    level = logger.level
    logger.setLevel(ERROR)
    try:
        version1.disable_v2_behavior()
    finally:
        logger.setLevel(level)
