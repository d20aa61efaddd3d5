"""<name>.json beside an environment: it says that the environment is whole, and which packages it
has."""

from __future__ import annotations

import os
import time

from tfdeploy.agent import wire
from tfdeploy.agent.annotations import TYPE_CHECKING, Dict, Optional
from tfdeploy.agent.host import atomic
from tfdeploy.agent.serve.env.install import is_pin

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import EnvironmentRecord


def path_of(folder: str) -> str:
    """The record's file of the environment in that folder."""
    return folder + ".json"


def read(folder: str) -> Optional[EnvironmentRecord]:
    """None: the environment is not whole. An entry that is no package with a version is left out.
    Raises OSError."""
    stored = atomic.read_json(path_of(folder))
    if stored is None:
        return None
    packages = stored.get("packages")
    pins = packages.items() if isinstance(packages, dict) else ()
    return {
        "v": wire.VERSION,
        "time": stored["time"] if isinstance(stored.get("time"), (int, float)) else 0.0,
        "by": "pip" if stored.get("by") == "pip" else "uv",
        "python": str(stored.get("python")),
        "packages": {name: version for name, version in pins if is_pin(name, version)},
    }


def write(folder: str, by: str, python: str, packages: Dict[str, str]) -> None:
    """Records that the environment is whole; `by`: uv or pip. Raises OSError."""
    record: EnvironmentRecord = {
        "v": wire.VERSION,
        "time": time.time(),
        "by": by,
        "python": python,
        "packages": packages,
    }
    atomic.write_json(path_of(folder), record)


def forget(folder: str) -> None:
    """Removes the record: the environment is not whole any more. Raises OSError."""
    try:
        os.unlink(path_of(folder))
    except FileNotFoundError:
        pass
