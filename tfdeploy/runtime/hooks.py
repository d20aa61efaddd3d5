"""Apply patches right after a module is imported, by a finder at the head of sys.meta_path.

The finder handles only modules that have patches. For such a module, the finder asks the other
finders and wraps the loader that they return. If a patch fails, the import still succeeds, and one
line is written to standard error.
"""

from __future__ import annotations

import sys
from _thread import get_ident

from . import patches, task

# The modules typing and threading are not imported, because that would take 9 ms at each start of
# Python.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Optional, Tuple


class PatchingLoader:
    """Wraps the loader of a module and runs the module's patches before and after this loader. The
    module itself sees only its original loader."""

    def __init__(self, loader: Any, patches: Tuple[str, ...]) -> None:
        self._loader = loader
        self._patches = patches

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: Any) -> Any:
        return self._loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        module.__spec__.loader = module.__loader__ = self._loader
        for patch in self._patches:
            call_patch(patch, "before_import")
        self._loader.exec_module(module)
        for patch in self._patches:
            call_patch(patch, "patch_module", module)


class PatchingFinder:
    """A finder that wraps the loaders of modules with patches. `patches_by_module`: module name ->
    names of its patches, which are modules of this package."""

    def __init__(self, patches_by_module: Dict[str, Tuple[str, ...]]) -> None:
        self._wanted = patches_by_module
        self._asking: set[tuple[int, str]] = set()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        # Another finder may search for the same module again, through this finder. To prevent an
        # endless recursion, this finder finds nothing in such a nested search.
        asking = (get_ident(), name)
        if name not in self._wanted or asking in self._asking:
            return None
        self._asking.add(asking)
        try:
            spec = self._find_original_spec(name, path, target)
            if spec is not None and hasattr(spec.loader, "exec_module"):
                spec.loader = PatchingLoader(spec.loader, self._wanted[name])
            return spec
        except Exception as error:  # noqa: BLE001 the import continues without patches
            task.print_failure(self._wanted[name][0], error)
            return None
        finally:
            self._asking.discard(asking)

    def _find_original_spec(self, name: str, path: Any, target: Any) -> Optional[Any]:
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find is not None and finder is not self else None
            if spec is not None:
                return spec
        return None


def call_patch(patch: str, function: str, *args: Any) -> None:
    """Call a function of a patch, `before_import()` or `patch_module(module)`, if the patch has
    this function. Never raises."""
    # importlib is imported only here, because most processes need no patch and so no importlib.
    from importlib import import_module

    try:
        run = getattr(import_module("." + patch, __package__), function, None)
        if run is not None:
            run(*args)
    except Exception as error:  # noqa: BLE001 the user's program continues
        task.print_failure(patch, error)


def install() -> None:
    """Install the finder. Call this function once, before TensorFlow is imported."""
    task.save_tf_config()
    patches_by_name = patches.patches_by_module()
    # A .pth file may already have imported a module that has patches, such as shutil. The finder
    # does not see this module any more, so it is patched here.
    for name in patches_by_name.keys() & sys.modules.keys():
        for patch in patches_by_name[name]:
            call_patch(patch, "patch_module", sys.modules[name])
    sys.meta_path.insert(0, PatchingFinder(patches_by_name))
