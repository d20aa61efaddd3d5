"""Error texts for names that TensorFlow 2 no longer has: one error with the program's file and line and what replaces the name.

Only asked when a name or module was not found, so nothing that exists is touched. An attribute gives
AttributeError, an import ImportError, as ever: programs that try and go on still do.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any, Optional

from . import replaced

_PREFIX = "tensorflow."
_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep


def apply(module: Any) -> None:
    """Gives `module`, a part of TensorFlow, words for the names that it has no more."""
    prefix = module.__name__[len(_PREFIX) :] + "." if module.__name__.startswith(_PREFIX) else ""
    watch(module, prefix)


def watch(module: Any, prefix: str) -> None:
    """`prefix`: the module as programs write it, without `tf.`: "", "train."; parts that are supplied are imported."""
    before = vars(module).get("__getattr__")

    def absent(name: str) -> Any:
        if name == "contrib" and not prefix:
            return import_module(_PREFIX + name)
        words = None if name.startswith("_") else replaced.in_place(prefix + name)
        if words is not None:
            raise AttributeError(sentence(prefix + name, words))
        if before is not None:
            return before(name)
        raise AttributeError("module %r has no attribute %r" % (module.__name__, name))

    module.__getattr__ = absent


class LastFinder:
    """The last finder: it sees the modules of TensorFlow that no other finder found."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name.startswith(_PREFIX):
            words = replaced.in_place(name[len(_PREFIX) :])
            if words is not None:
                raise ImportError(sentence(name[len(_PREFIX) :], words), name=name)


def sentence(name: str, words: str) -> str:
    place = _place()
    return "%stf.%s is not in TensorFlow 2; in its place: %s" % (place + ": " if place else "", name, words)


def _place() -> Optional[str]:
    """file:line of the nearest code that is neither ours nor the import system's nor TensorFlow's."""
    frame: Any = sys._getframe(1)
    tensorflow = getattr(sys.modules.get("tensorflow"), "__file__", None) or os.sep
    foreign = (_OURS, os.path.dirname(tensorflow) + os.sep, "<frozen ", os.path.dirname(os.__file__) + os.sep + "importlib")
    while frame is not None:
        if not frame.f_code.co_filename.startswith(foreign):
            return "%s:%d" % (frame.f_code.co_filename, frame.f_lineno)
        frame = frame.f_back
    return None


def install() -> None:
    """Puts the last finder in place, once."""
    if not any(isinstance(finder, LastFinder) for finder in sys.meta_path):
        sys.meta_path.append(LastFinder())
