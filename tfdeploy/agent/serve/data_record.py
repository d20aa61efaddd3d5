"""The two small files beside a data set: <name>.tfdeploy marks its folder as ours, <name>.json records that it is whole."""

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
    """When its latest sync began, in seconds of its file system's clock. Raises OSError."""
    return os.stat(_marker(folder)).st_mtime


def mark(folder: str) -> None:
    """Marks the folder as ours, and that a sync begins now. Raises OSError."""
    marker: DataMarker = {"v": wire.VERSION, "time": time.time(), "name": os.path.basename(folder)}
    atomic.write_json(_marker(folder), marker)


def read(folder: str) -> Optional[DataRecord]:
    """None: the data set is not whole. Raises OSError."""
    stored = atomic.read_json(_record(folder))
    if stored is None:
        return None
    time_s = stored["time"] if isinstance(stored.get("time"), (int, float)) else 0.0
    return {"v": wire.VERSION, "time": time_s, "digest": str(stored.get("digest"))}


def write(folder: str, digest: str) -> None:
    """Records that the data set is whole. Raises OSError."""
    record: DataRecord = {"v": wire.VERSION, "digest": digest, "time": time.time()}
    atomic.write_json(_record(folder), record, durable=True)


def forget(folder: str) -> None:
    """Removes the record: the data set is not whole any more. Raises OSError."""
    if os.path.exists(_record(folder)):
        os.unlink(_record(folder))


def _marker(folder: str) -> str:
    return folder + ".tfdeploy"


def _record(folder: str) -> str:
    return folder + ".json"
