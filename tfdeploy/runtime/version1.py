"""`import tensorflow as tf` gives TensorFlow 1: its names, its behaviour, and the few modules beside it that programs use.

The real module stays what it is (same object, file, `__path__`, loader) and gets the names of its own
`compat.v1`; names of version 2 alone stay, since libraries use them. Only with TFDEPLOY_TASK_COMPAT=v1.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from types import ModuleType
from typing import Any

from . import absent, version0

SUPPLIED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "supplied")
# Flags that absl defines for itself, and that programs of 2016 to 2018 define too: theirs counts.
_ALSO_OURS = ("log_dir", "verbosity", "alsologtostderr", "logtostderr", "stderrthreshold", "pdb", "profile_file")
_OLDER_TOO = ("image", "nn", "train")  # parts that had other names, or other calls, in TensorFlow 0.x
_LEGACY = "TF_USE_LEGACY_KERAS"


def before() -> None:
    """Before TensorFlow is imported: tf.layers and tf.nn.rnn_cell are in tf_keras alone since TensorFlow 2.16. The plan has set
    the variable where it saw such a name (planning/versions/legacy_keras.py); it sees none behind a shell script."""
    from importlib.util import find_spec

    if _LEGACY not in os.environ and find_spec("tf_keras") is not None:
        os.environ[_LEGACY] = "1"


def apply(tensorflow: Any) -> None:
    """`tensorflow`: the real package, just imported. One that is version 1 itself is left alone."""
    version1 = tensorflow.compat.v1
    if tensorflow.__version__.startswith("1."):
        return
    for name in dir(version1):
        if not name.startswith("_"):
            setattr(tensorflow, name, getattr(version1, name))
    tensorflow.__path__.append(SUPPLIED)
    _disable_version2(version1)
    _share_flags()
    for part in _OLDER_TOO:
        if hasattr(version1, part):
            setattr(tensorflow, part, _older_too(part, getattr(version1, part)))
    absent.watch(tensorflow, "")
    version0.accept_old_calls(tensorflow, "")
    absent.install()


def _older_too(part: str, module: Any) -> Any:
    """A part of version 1 with what TensorFlow 0.x had there; that of tensorflow.compat.v1 stays as it is."""
    made = sys.modules["tensorflow." + part] = ModuleType("tensorflow." + part, module.__doc__)
    made.__path__ = list(getattr(module, "__path__", ()))  # `from tensorflow.nn.rnn_cell import GRUCell`
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
    """In silence: that it is deprecated concerns no one who did not write it."""
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

    for name in _ALSO_OURS:
        if name in FLAGS:
            FLAGS[name].allow_override = True
