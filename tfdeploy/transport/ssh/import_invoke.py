"""Imports fabric's invoke without what it never needs here: a tenth of what each verb over SSH costs.

invoke imports `unittest.mock`, and with it asyncio and ssl, for a class that tests of its users make; and a YAML reader of
its own for settings files, which are never read here (see connect._config).
"""

from __future__ import annotations

import sys
from types import ModuleType

NEEDLESS = ("unittest.mock", "invoke.vendor.yaml")


def import_invoke() -> None:
    """Afterwards `unittest.mock` is what it was for everybody else."""
    if {*NEEDLESS, "invoke"} & set(sys.modules):
        return
    for name in NEEDLESS:
        stand_in = ModuleType(name)
        stand_in.__dict__["__getattr__"] = lambda asked: None
        sys.modules[name] = stand_in
    try:
        import invoke  # noqa: F401
    finally:
        for name in NEEDLESS:
            del sys.modules[name]
