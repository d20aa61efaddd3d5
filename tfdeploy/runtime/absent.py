"""Names that TensorFlow 2 no longer has: what takes their place, or one error with the program's file and line and what to write.

Only asked when a name or module was not found, so nothing that exists is touched. An attribute gives
AttributeError, an import ImportError, as ever: programs that try and go on still do. An import that nothing would catch
gives a stand-in, which fails when it is used: a program's imports name more than it reaches.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from typing import Any, Optional

from . import contrib, renamed, replaced, version0
from .callers import may_be_caught, sentence

_PREFIX = "tensorflow."


def apply(module: Any) -> None:
    """Gives `module`, a part of TensorFlow, words for the names that it has no more."""
    prefix = module.__name__[len(_PREFIX) :] + "." if module.__name__.startswith(_PREFIX) else ""
    watch(module, prefix)


def watch(module: Any, prefix: str) -> None:
    """`prefix`: the module as programs write it, without `tf.`: "", "train."; parts that are supplied are imported."""
    before = vars(module).get("__getattr__")

    def absent(name: str) -> Any:
        full = prefix + name
        if full == "contrib" or (prefix == "contrib." and not name.startswith("_") and _importable(full)):
            return import_module(_PREFIX + full)
        if prefix.startswith("contrib.") and not name.startswith("_"):
            return contrib.find(full)
        if full in renamed.VERSION0:
            setattr(module, name, version0.find(full))
            return getattr(module, name)
        if not name.startswith("_") and replaced.in_place(full) is not None:
            raise AttributeError(sentence(full))
        if before is not None:
            return before(name)
        raise AttributeError("module %r has no attribute %r" % (module.__name__, name))

    module.__getattr__ = absent


class LastFinder:
    """The last finder: it sees the modules of TensorFlow that no other finder found."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Optional[ModuleSpec]:
        full = name[len(_PREFIX) :]
        if not name.startswith(_PREFIX) or not (contrib.has(full) or replaced.in_place(full)):
            return None
        if not _importable(full):
            raise ModuleNotFoundError(sentence(full), name=_PREFIX + full.partition(".")[0])
        return ModuleSpec(name, contrib.Loader(), is_package=True)  # type: ignore[arg-type]


def _importable(full: str) -> bool:
    return contrib.has(full) or replaced.supplied(full) or (replaced.stands_in(full) and not may_be_caught())


def install() -> None:
    """Puts the last finder in place, once."""
    if not any(isinstance(finder, LastFinder) for finder in sys.meta_path):
        sys.meta_path.append(LastFinder())
