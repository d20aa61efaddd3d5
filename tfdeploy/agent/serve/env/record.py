"""Reads and writes <name>.json beside an environment. This record says that the environment is
complete, and lists its packages."""

from __future__ import annotations

import time

from tfdeploy.agent import wire
from tfdeploy.agent.annotations import TYPE_CHECKING, Dict, Optional
from tfdeploy.agent.host import atomic
from tfdeploy.agent.serve.env.install import is_valid_pin

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import EnvironmentRecord


def record_path(folder: str) -> str:
    """Return the path of the environment's record."""
    return folder + ".json"


def read_record(folder: str) -> Optional[EnvironmentRecord]:
    """Return what is recorded about the environment, or None if it is not complete. Entries that
    are not a package with a version are left out. Raises OSError."""
    stored = atomic.read_json(record_path(folder))
    if stored is None:
        return None
    packages = stored.get("packages")
    pins = packages.items() if isinstance(packages, dict) else ()
    return {
        "v": wire.VERSION,
        "time": stored["time"] if isinstance(stored.get("time"), (int, float)) else 0.0,
        "by": "pip" if stored.get("by") == "pip" else "uv",
        "python": str(stored.get("python")),
        "packages": {name: version for name, version in pins if is_valid_pin(name, version)},
    }


def write_record(folder: str, installer: str, python: str, packages: Dict[str, str]) -> None:
    """Record that the environment is complete. `installer`: uv or pip. Raises OSError."""
    record: EnvironmentRecord = {
        "v": wire.VERSION,
        "time": time.time(),
        "by": installer,
        "python": python,
        "packages": packages,
    }
    atomic.write_json(record_path(folder), record)


def remove_record(folder: str) -> None:
    """Remove the record, so the environment no longer counts as complete. Raises OSError."""
    atomic.remove_file(record_path(folder))
