"""Lets a patch run right after a module of TensorFlow is imported, and only then.

A finder at the head of sys.meta_path that knows a few names. It finds nothing itself: it asks the
finders behind it and wraps the loader they name. An error of ours costs one line on standard error and
the patch, never the import.
"""

from __future__ import annotations

import sys
from _thread import get_ident

from . import patches, task

TYPE_CHECKING = False  # typing and threading would cost each start of Python 9 ms
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Optional


class Loader:
    """A module's own loader, with a word after it. Out of sight as soon as the module runs."""

    def __init__(self, loader: Any, after: Callable[[Any], None]) -> None:
        self._loader = loader
        self._after = after

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: Any) -> Any:
        return self._loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._after(module)


class Finder:
    """`wanted`: module name -> name of the patch in this package."""

    def __init__(self, wanted: Dict[str, str]) -> None:
        self._wanted = wanted
        self._asking: set[tuple[int, str]] = set()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        patch = self._wanted.get(name)
        if patch is None:
            return None
        asking = (get_ident(), name)  # a finder behind us may ask from the start again
        if asking in self._asking:
            return None
        self._asking.add(asking)
        try:
            return self._wrapped(name, path, target, patch)
        except Exception as error:  # noqa: BLE001 the import goes on without us
            task.say_failed(patch, error)
            return None
        finally:
            self._asking.discard(asking)

    def _wrapped(self, name: str, path: Any, target: Any, patch: str) -> Any:
        spec = self._found_behind(name, path, target)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = Loader(spec.loader, lambda module: apply(patch, module))
        return spec

    def _found_behind(self, name: str, path: Any, target: Any) -> Optional[Any]:
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find is not None and finder is not self else None
            if spec is not None:
                return spec
        return None


def apply(patch: str, module: Any) -> None:
    """Runs `apply(module)` of the patch's module. Never raises."""
    try:
        __import__("%s.%s" % (__package__, patch))
        sys.modules["%s.%s" % (__package__, patch)].apply(module)
    except Exception as error:  # noqa: BLE001 the user's program goes on
        task.say_failed(patch, error)


def install() -> None:
    """Puts the finder in place. Call once, before anything imports TensorFlow."""
    sys.meta_path.insert(0, Finder(patches.BY_MODULE))
