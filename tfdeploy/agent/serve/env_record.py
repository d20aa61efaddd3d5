"""<name>.json beside an environment: it is whole, and this is what it is made of."""

from __future__ import annotations

import os
import time

from tfdeploy.agent import wire
from tfdeploy.agent.annotations import TYPE_CHECKING, Dict, Optional
from tfdeploy.agent.host import atomic
from tfdeploy.agent.serve.env_install import is_pin

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import EnvironmentRecord


def of(folder: str) -> str:
    """Where it lies."""
    return folder + ".json"


def read(folder: str) -> Optional[EnvironmentRecord]:
    """None: the environment is not whole. What is no package and its version is left out. Raises OSError."""
    said = atomic.read_json(of(folder))
    if said is None:
        return None
    packages = said.get("packages")
    pins = packages.items() if isinstance(packages, dict) else ()
    return {
        "v": wire.VERSION,
        "time": said["time"] if isinstance(said.get("time"), (int, float)) else 0.0,
        "by": "pip" if said.get("by") == "pip" else "uv",
        "python": str(said.get("python")),
        "packages": {name: version for name, version in pins if is_pin(name, version)},
    }


def write(folder: str, by: str, python: str, packages: Dict[str, str]) -> None:
    """Raises OSError."""
    record: EnvironmentRecord = {"v": wire.VERSION, "time": time.time(), "by": by, "python": python, "packages": packages}
    atomic.write_json(of(folder), record)


def forget(folder: str) -> None:
    """From here on it is no environment any more. Raises OSError."""
    try:
        os.unlink(of(folder))
    except FileNotFoundError:
        pass
