"""The two small files beside a data set: <name>.tfdeploy, its folder is ours, and <name>.json, it is whole."""

from __future__ import annotations

import os
import time

from tfdeploy.agent import wire
from tfdeploy.agent.annotations import TYPE_CHECKING, Optional
from tfdeploy.agent.host import atomic

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import DataMarker, DataRecord


def is_ours(folder: str) -> bool:
    return os.path.exists(_marker(folder))


def begun(folder: str) -> float:
    """When the latest sync of it began, by its file system's clock. Raises OSError."""
    return os.stat(_marker(folder)).st_mtime


def mark(folder: str) -> None:
    """Ours, and a sync begins. Raises OSError."""
    marker: DataMarker = {"v": wire.VERSION, "time": time.time(), "name": os.path.basename(folder)}
    atomic.write_json(_marker(folder), marker)


def read(folder: str) -> Optional[DataRecord]:
    """None: the data set is not whole. Raises OSError."""
    said = atomic.read_json(_record(folder))
    if said is None:
        return None
    time_s = said["time"] if isinstance(said.get("time"), (int, float)) else 0.0
    return {"v": wire.VERSION, "time": time_s, "digest": str(said.get("digest"))}


def write(folder: str, digest: str) -> None:
    """Raises OSError."""
    record: DataRecord = {"v": wire.VERSION, "digest": digest, "time": time.time()}
    atomic.write_json(_record(folder), record, durable=True)


def forget(folder: str) -> None:
    """From here on it is not whole. Raises OSError."""
    if os.path.exists(_record(folder)):
        os.unlink(_record(folder))


def _marker(folder: str) -> str:
    return folder + ".tfdeploy"


def _record(folder: str) -> str:
    return folder + ".json"
