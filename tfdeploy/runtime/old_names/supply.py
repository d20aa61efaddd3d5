"""Find the object that replaces a removed name of TensorFlow.

The replacement is an object of the package tf_slim, the same object of TensorFlow under its new
name, or an object of tfdeploy. TensorFlow 2 has no tf.contrib, and programs import many modules of
tf.contrib and use few of them, often in functions that are never called. So a name of tf.contrib
without a replacement gets a stand-in: the import succeeds, and only a use of the name is an error.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any, Dict, NoReturn, Optional, Tuple

from .. import task
from . import removed_names, version0
from .call_site import format_error

_TF = "tensorflow."
# Module of tf.contrib -> (modules of tf_slim that contain the same names, submodules of the contrib
# module from which programs may import these names).
_SLIM: Dict[str, Tuple[Tuple[str, ...], Tuple[str, ...]]] = {
    "slim": (("tf_slim",), ("python.slim",)),
    "framework": (("tf_slim", "tf_slim.ops"), ("python.ops", "python.framework")),
    "layers": (("tf_slim.layers",), ("python.layers", "python.ops")),
    "losses": (("tf_slim.losses",), ("python.losses",)),
    "metrics": (("tf_slim.metrics",), ("python.ops", "python.metrics")),
    "training": (("tf_slim.training.training",), ("python.training",)),
}


class ContribStandIn(ModuleType):
    """A stand-in for a module or name of tf.contrib.

    A name of the module is looked up when the program accesses it. Calling the stand-in, or
    deriving a class from it, raises AttributeError."""

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
        return resolve_name("%s.%s" % (self.__name__[len(_TF) :], name))

    def __call__(self, *_: Any, **__: Any) -> NoReturn:
        raise AttributeError(format_error(self.__name__[len(_TF) :]))

    # Python calls this method for a class that is derived from the stand-in.
    __mro_entries__ = __call__

    def __instancecheck__(self, instance: Any) -> bool:
        return False


class StandInLoader:
    """A loader that creates a ContribStandIn. If another package provides the same module, the
    loader replaces the ContribStandIn by that package's module."""

    def create_module(self, spec: Any) -> ContribStandIn:
        return ContribStandIn(spec.name)

    def exec_module(self, module: Any) -> None:
        target = removed_names.MODULES.get(module.__name__[len(_TF) :])
        if target is not None:
            sys.modules[module.__name__] = import_module(target)


def is_module(name: str) -> bool:
    """Return True if `name` is a module of tf.contrib and tfdeploy supplies some of its names.
    `contrib.slim` counts only if the package tf_slim is installed."""
    part, inner_name = removed_names.split_contrib(name)
    of_module = any(removed_names.is_within(module, name) for module in removed_names.MODULES)
    if of_module or (not inner_name and removed_names.supplied_names(part)):
        return True
    return part == "slim" and _import_slim_module("tf_slim") is not None


def resolve_name(name: str) -> Any:
    """Return the object for a removed name, such as "mul" or "contrib.PART.NAME".

    Raises AttributeError, which says what to write instead."""
    module = removed_names.MODULES.get(name)
    if module is not None:
        return import_module(module)
    attribute = _find_in_slim(name)
    if attribute is not None:
        return attribute
    part, inner_name = removed_names.split_contrib(name)
    full = "contrib.%s.%s" % (part, inner_name) if part else name
    if full in removed_names.RENAMED:
        return _resolve_renamed(full)
    if inner_name in removed_names.CONTRIB.get(part, ()):
        return getattr(import_module(_TF + "contrib." + part), inner_name)
    if any(each.startswith(name + ".") for each in removed_names.MODULES):
        return import_module(_TF + name)
    raise AttributeError(format_error(name))


def patch_module(module: Any) -> None:
    """Set the names that `import *` imports from a supplied module.

    If tf_slim is installed, also replace the names of the module by those of tf_slim, because the
    arg_scope of tf_slim works only with the layers of tf_slim."""
    full = module.__name__[len(_TF) :]
    module.__all__ = list(removed_names.supplied_names(removed_names.split_contrib(full)[0]))
    for name in module.__all__:
        attribute = _find_in_slim("%s.%s" % (full, name))
        if attribute is not None:
            setattr(module, name, attribute)


def _resolve_renamed(old: str) -> Any:
    target = removed_names.RENAMED[old]
    # The new name may have been renamed again: names in contrib.deprecated lead to names of
    # TensorFlow 0.x.
    if target in removed_names.RENAMED:
        return _resolve_renamed(target)
    module = sys.modules["tensorflow"].compat.v1
    if target.startswith("python."):
        path, _, target = target.rpartition(".")
        module = import_module(_TF + path)
    for name in target.split("."):
        module = getattr(module, name)
    return version0.adapt_to_version0(old, module)


def _find_in_slim(name: str) -> Any:
    """Return the object of tf_slim for a name of tf.contrib; None if there is none.

    If a module has the same name as a function or class, return the function or class."""
    part, _, inner_name = name[len("contrib.") :].partition(".")
    if not name.startswith("contrib.") or part not in _SLIM:
        return None
    bases, folders = _SLIM[part]
    inner_name = next(
        (
            inner_name[len(folder) + 1 :]
            for folder in folders
            if removed_names.is_within(inner_name, folder)
        ),
        inner_name,
    )
    attributes = [
        each
        for each in (
            _find_slim_attribute("%s.%s" % (base, inner_name)) for base in bases if inner_name
        )
        if each is not None
    ]
    return next(
        (each for each in attributes if not isinstance(each, ModuleType)),
        attributes[-1] if attributes else None,
    )


def _find_slim_attribute(path: str) -> Any:
    """Return the attribute or module that tf_slim has at this path, or None.

    If tf_slim has both an attribute and a module at this path, return the attribute."""
    above, _, last = path.rpartition(".")
    attribute = getattr(_import_slim_module(above), last, None)
    return (
        _import_slim_module(path)
        if attribute is None and _import_slim_module(above) is not None
        else attribute
    )


def _import_slim_module(name: str) -> Optional[Any]:
    """Import and return a module of tf_slim.

    Return None if the module is missing, or if its import fails with this version of TensorFlow."""
    try:
        return import_module(name)
    except Exception as error:  # noqa: BLE001 fall back to supplied/
        is_missing = isinstance(error, ModuleNotFoundError) and name.startswith(error.name or name)
        if not is_missing:
            task.print_failure("tf_slim", error)
        return None
