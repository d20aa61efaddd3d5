"""Resolves removed names: today's names, names of the package tf_slim, stand-ins for the rest of
contrib.

TensorFlow 2 has no tf.contrib. Programs import much of it at their top and use little, often in
functions that nobody calls. So an import succeeds, and only the use of a missing name is an error.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any, Dict, NoReturn, Optional, Tuple

from .. import task
from . import removed_names, version0
from .call_site import error_text

_TF = "tensorflow."
# Part of contrib -> (the modules of tf_slim that have its names, the folders in which contrib kept
# them).
_SLIM: Dict[str, Tuple[Tuple[str, ...], Tuple[str, ...]]] = {
    "slim": (("tf_slim",), ("python.slim",)),
    "framework": (("tf_slim", "tf_slim.ops"), ("python.ops", "python.framework")),
    "layers": (("tf_slim.layers",), ("python.layers", "python.ops")),
    "losses": (("tf_slim.losses",), ("python.losses",)),
    "metrics": (("tf_slim.metrics",), ("python.ops", "python.metrics")),
    "training": (("tf_slim.training.training",), ("python.training",)),
}


class Section(ModuleType):
    """A module of contrib without a file. Names are looked up on access; calling it or deriving
    from it raises."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name == "__all__":
            return list(
                removed_names.supplied_names(
                    removed_names.split_contrib(self.__name__[len(_TF) :])[0]
                )
            )
        if name.startswith("__"):
            raise AttributeError(name)
        return find("%s.%s" % (self.__name__[len(_TF) :], name))

    def __call__(self, *_: Any, **__: Any) -> NoReturn:
        raise AttributeError(error_text(self.__name__[len(_TF) :]))

    def __mro_entries__(self, bases: Any) -> NoReturn:
        raise AttributeError(error_text(self.__name__[len(_TF) :]))

    def __instancecheck__(self, instance: Any) -> bool:
        return False


class Loader:
    """Creates a Section, or replaces it by the module of another package."""

    def create_module(self, spec: Any) -> Section:
        return Section(spec.name)

    def exec_module(self, module: Any) -> None:
        target = removed_names.MODULES.get(module.__name__[len(_TF) :])
        if target is not None:
            sys.modules[module.__name__] = import_module(target)


def is_module(name: str) -> bool:
    """Whether `name` is a module of contrib that has names, with or without a file in supplied/."""
    part, rest = removed_names.split_contrib(name)
    of_module = any(removed_names.is_within(module, name) for module in removed_names.MODULES)
    if of_module or (not rest and removed_names.supplied_names(part)):
        return True
    return part == "slim" and _slim_module("tf_slim") is not None


def find(name: str) -> Any:
    """Return what a removed name stands for: "mul", "contrib.PART.NAME".

    Raises AttributeError that says what to write instead."""
    module = removed_names.MODULES.get(name)
    if module is not None:
        return import_module(module)
    attribute = _of_slim(name)
    if attribute is not None:
        return attribute
    part, rest = removed_names.split_contrib(name)
    full = "contrib.%s.%s" % (part, rest) if part else name
    if full in removed_names.RENAMED:
        return _resolve(full)
    if rest in removed_names.CONTRIB.get(part, ()):
        return getattr(import_module(_TF + "contrib." + part), rest)
    if any(each.startswith(name + ".") for each in removed_names.MODULES):
        return import_module(_TF + name)
    raise AttributeError(error_text(name))


def apply(module: Any) -> None:
    """Replace the names of a supplied part by those of tf_slim, if it is installed: its arg_scope
    knows only its own layers."""
    for name in module.__all__:
        attribute = _of_slim("%s.%s" % (module.__name__[len(_TF) :], name))
        if attribute is not None:
            setattr(module, name, attribute)


def _resolve(old: str) -> Any:
    target = removed_names.RENAMED[old]
    if target in removed_names.RENAMED:  # contrib.deprecated has names of 0.x
        return _resolve(target)
    module = sys.modules["tensorflow"].compat.v1
    if target.startswith("python."):
        path, _, target = target.rpartition(".")
        module = import_module(_TF + path)
    for name in target.split("."):
        module = getattr(module, name)
    return version0.adapt(old, module)


def _of_slim(name: str) -> Any:
    """What tf_slim has under this name, or None. A module counts only if nothing else has the
    name."""
    part, _, rest = name[len("contrib.") :].partition(".")
    if not name.startswith("contrib.") or part not in _SLIM:
        return None
    bases, folders = _SLIM[part]
    rest = next(
        (rest[len(folder) + 1 :] for folder in folders if removed_names.is_within(rest, folder)),
        rest,
    )
    attributes = [
        each
        for each in (_attribute("%s.%s" % (base, rest)) for base in bases if rest)
        if each is not None
    ]
    return next(
        (each for each in attributes if not isinstance(each, ModuleType)),
        attributes[-1] if attributes else None,
    )


def _attribute(path: str) -> Any:
    """The attribute of a module of tf_slim at this path, else the module."""
    above, _, last = path.rpartition(".")
    attribute = getattr(_slim_module(above), last, None)
    return (
        _slim_module(path) if attribute is None and _slim_module(above) is not None else attribute
    )


def _slim_module(name: str) -> Optional[Any]:
    """Import a module of tf_slim; None if it is missing or fails with this TensorFlow."""
    try:
        return import_module(name)
    except Exception as error:  # noqa: BLE001 fall back to supplied/
        is_missing = isinstance(error, ModuleNotFoundError) and name.startswith(error.name or name)
        if not is_missing:
            task.say_failed("tf_slim", error)
        return None
