"""Imports fabric's invoke without two modules that it does not need here: they cost a tenth of each verb over SSH.

`unittest.mock` (with asyncio and ssl) serves a class for tests, and invoke's own YAML reader serves settings files, which
are never read here (see connect._template).
"""

from __future__ import annotations

import sys
from types import ModuleType

UNUSED = ("unittest.mock", "invoke.vendor.yaml")


def import_invoke() -> None:
    """Other importers of `unittest.mock` get the real one."""
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
