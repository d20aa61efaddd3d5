"""Handle lookups of names that TensorFlow 2 no longer has.

Such a lookup returns the object that tfdeploy supplies, or raises an error that says what to write
instead.

Python calls these functions only after it has not found a name or module, so existing names do not
change. The errors are AttributeError and ImportError, so a `try` of the program still catches them.
Programs import more modules than they use. So an import outside a `try` returns a stand-in, an
object that raises the error only when the program uses the object.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from typing import Any, Optional

from . import removed_names, supply
from .call_site import format_error, may_be_caught

_PREFIX = "tensorflow."


def patch_module(module: Any) -> None:
    """Handle lookups of removed names in `module`, a module or package of TensorFlow."""
    prefix = module.__name__[len(_PREFIX) :] + "." if module.__name__.startswith(_PREFIX) else ""
    handle_missing_names(module, prefix)


def handle_missing_names(module: Any, prefix: str) -> None:
    """Set the module's function `__getattr__`, which Python calls for a missing name.

    `prefix`: the path of the module as programs write it, without the leading `tf.`. Examples: ""
    for tf itself, "train." for tf.train."""
    before = vars(module).get("__getattr__")

    def absent(name: str) -> Any:
        full = prefix + name
        if not name.startswith("_"):
            if full == "contrib" or (prefix == "contrib." and _can_import_stand_in(full)):
                return import_module(_PREFIX + full)
            if prefix.startswith("contrib.") or full in removed_names.RENAMED:
                setattr(module, name, supply.resolve_name(full))
                return getattr(module, name)
            if removed_names.replacement_hint(full) is not None:
                raise AttributeError(format_error(full))
        if before is not None:
            return before(name)
        raise AttributeError("module %r has no attribute %r" % (module.__name__, name))

    module.__getattr__ = absent


class StandInModuleFinder:
    """Finds modules that TensorFlow has removed. Python asks this finder last, after all others
    have failed."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Optional[ModuleSpec]:
        full = name[len(_PREFIX) :]
        if not name.startswith(_PREFIX) or not (
            supply.is_module(full) or removed_names.replacement_hint(full)
        ):
            return None
        if not _can_import_stand_in(full):
            raise ModuleNotFoundError(format_error(full), name=_PREFIX + full.partition(".")[0])
        return ModuleSpec(name, supply.StandInLoader(), is_package=True)  # type: ignore[arg-type]


def _can_import_stand_in(full: str) -> bool:
    return (
        supply.is_module(full)
        or removed_names.is_supplied(full)
        or (removed_names.has_stand_in(full) and not may_be_caught())
    )


def install() -> None:
    """Install the finder, if it is not installed yet."""
    if not any(isinstance(finder, StandInModuleFinder) for finder in sys.meta_path):
        sys.meta_path.append(StandInModuleFinder())
