"""tf.contrib beyond the files in supplied/: names that are elsewhere today, what tf_slim has, and stand-ins for the rest.

TensorFlow 2 has no tf.contrib. Programs import pieces of it at their top and use a few of them, often in functions that
nobody calls; so an import succeeds, and the first use of something that is nowhere is the error.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any, Dict, NoReturn, Optional, Tuple

from . import renamed, replaced, task
from .callers import sentence

_TF = "tensorflow."
# Where a part of contrib lies in tf_slim, and the folders that a path in contrib may have instead.
_SLIM: Dict[str, Tuple[Tuple[str, ...], Tuple[str, ...]]] = {
    "slim": (("tf_slim",), ("python.slim",)),
    "framework": (("tf_slim", "tf_slim.ops"), ("python.ops", "python.framework")),
    "layers": (("tf_slim.layers",), ("python.layers", "python.ops")),
    "losses": (("tf_slim.losses",), ("python.losses",)),
    "metrics": (("tf_slim.metrics",), ("python.ops", "python.metrics")),
    "training": (("tf_slim.training.training",), ("python.training",)),
}


class Section(ModuleType):
    """A module of contrib that has no file. A name is looked for when it is asked for; any use of what is nowhere raises."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name == "__all__":
            return list(replaced.names_of(replaced.section(self.__name__[len(_TF) :])[0]))
        if name.startswith("__"):
            raise AttributeError(name)
        return find("%s.%s" % (self.__name__[len(_TF) :], name))

    def __call__(self, *_: Any, **__: Any) -> NoReturn:
        raise AttributeError(sentence(self.__name__[len(_TF) :]))

    def __mro_entries__(self, bases: Any) -> NoReturn:
        raise AttributeError(sentence(self.__name__[len(_TF) :]))

    def __instancecheck__(self, instance: Any) -> bool:
        return False


class Loader:
    """Makes a Section, or puts a module of another package in its place."""

    def create_module(self, spec: Any) -> Section:
        return Section(spec.name)

    def exec_module(self, module: Any) -> None:
        target = renamed.MODULES.get(module.__name__[len(_TF) :])
        if target is not None:
            sys.modules[module.__name__] = import_module(target)


def has(name: str) -> bool:
    """Whether `name` is a module of contrib without a file of which something is supplied."""
    part, rest = replaced.section(name) if name.startswith("contrib.") else ("", "")
    if any(replaced.lies_in(module, name) for module in renamed.MODULES) or (part in renamed.CONTRIB and not rest):
        return True
    return part == "slim" and _slim_module("tf_slim") is not None


def find(name: str) -> Any:
    """What `contrib.PART.NAME` is today. Raises AttributeError with words for what it is not."""
    module = renamed.MODULES.get(name)
    if module is not None:
        return import_module(module)
    part, rest = replaced.section(name) if name.startswith("contrib.") else ("", "")
    found = _of_slim(name)
    if found is not None:
        return found
    target = renamed.CONTRIB.get(part, {}).get(rest)
    if target is not None:
        return _resolve(target)
    if rest in replaced.CONTRIB.get(part, ()):
        return getattr(import_module(_TF + "contrib." + part), rest)
    if any(each.startswith(name + ".") for each in renamed.MODULES):
        return import_module(_TF + name)
    raise AttributeError(sentence(name))


def apply(module: Any) -> None:
    """Gives a supplied part the names of tf_slim where a host has that: arg_scope knows its own layers alone."""
    for name in module.__all__:
        found = _of_slim("%s.%s" % (module.__name__[len(_TF) :], name))
        if found is not None:
            setattr(module, name, found)


def _resolve(target: str) -> Any:
    found = sys.modules["tensorflow"]
    if target.startswith("python."):
        path, _, target = target.rpartition(".")
        found = import_module(_TF + path)
    for name in target.split("."):
        found = getattr(found, name)
    return found


def _of_slim(name: str) -> Any:
    """What tf_slim has under this name; None: nothing. A module only where it has nothing else of that name."""
    part, _, rest = name[len("contrib.") :].partition(".")
    if not name.startswith("contrib.") or part not in _SLIM:
        return None
    bases, folders = _SLIM[part]
    rest = next((rest[len(folder) + 1 :] for folder in folders if replaced.lies_in(rest, folder)), rest)
    found = [each for each in (_attribute("%s.%s" % (base, rest)) for base in bases if rest) if each is not None]
    return next((each for each in found if not isinstance(each, ModuleType)), found[-1] if found else None)


def _attribute(path: str) -> Any:
    """An attribute of a module of tf_slim, or the module of that path."""
    above, _, last = path.rpartition(".")
    found = getattr(_slim_module(above), last, None)
    return _slim_module(path) if found is None and _slim_module(above) is not None else found


def _slim_module(name: str) -> Optional[Any]:
    """A module of tf_slim; None where there is none, or it does not work with this TensorFlow."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if not name.startswith(error.name or name):
            task.say_failed("tf_slim", error)
    except Exception as error:  # noqa: BLE001 then what we have ourselves counts
        task.say_failed("tf_slim", error)
    return None
