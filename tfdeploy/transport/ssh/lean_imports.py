"""Import invoke (for fabric) and paramiko without modules that tfdeploy does not need.

The modules that are left out cost a seventh of the CPU time of each verb over SSH. `unittest.mock`,
which imports asyncio and ssl, is needed only by a class for tests. invoke's YAML reader is needed
only for settings files, which tfdeploy does not read (see connect._connection). paramiko needs
`importlib.metadata`, which imports email, only to know its own version.
"""

from __future__ import annotations

import importlib
import os
import sys
from importlib.util import find_spec
from types import ModuleType

UNUSED = ("unittest.mock", "invoke.vendor.yaml")
_METADATA = "importlib.metadata"


def import_invoke() -> None:
    """Import invoke without the modules in UNUSED, which invoke imports but tfdeploy does not need.

    Later imports of these modules get the real modules.
    """
    if {*UNUSED, "invoke"} & set(sys.modules):
        return
    for name in UNUSED:
        stand_in = ModuleType(name)
        stand_in.__dict__["__getattr__"] = lambda asked: None
        sys.modules[name] = stand_in
    try:
        import invoke  # noqa: F401
    finally:
        for name in UNUSED:
            del sys.modules[name]


def defer_metadata_import() -> None:
    """Delay the import of `importlib.metadata` until something really needs it.

    When paramiko is imported, it asks `importlib.metadata` for paramiko's version. A stand-in
    module answers with the result of `_version_of_folder`.
    """
    if _METADATA in sys.modules:
        return
    deferred = ModuleType(_METADATA)

    def load(name: str) -> object:
        if sys.modules.get(_METADATA) is deferred:
            del sys.modules[_METADATA]
        return getattr(importlib.import_module(_METADATA), name)

    def version(package: str) -> str:
        found_version = _version_of_folder(package) if package == "paramiko" else None
        return found_version or load("version")(package)  # type: ignore[operator]

    deferred.__dict__.update(version=version, __getattr__=load)
    sys.modules[_METADATA] = deferred
    importlib.metadata = deferred


def _version_of_folder(package: str) -> str | None:
    """Return the version in the name of the package's `.dist-info` folder, if it has one."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        return None
    for name in os.listdir(os.path.dirname(os.path.dirname(spec.origin))):
        if name.startswith(f"{package}-") and name.endswith(".dist-info"):
            return name[len(package) + 1 : -len(".dist-info")]
    return None
