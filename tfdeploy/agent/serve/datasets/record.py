"""The two small files beside a data set: <name>.tfdeploy marks its folder as ours, <name>.json
records that it is whole."""

from __future__ import annotations

import os
import time

from tfdeploy.agent import wire
from tfdeploy.agent.annotations import TYPE_CHECKING, Optional
from tfdeploy.agent.host import atomic

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import DataMarker, DataParts, DataRecord


def is_ours(folder: str) -> bool:
    return os.path.exists(_marker(folder))


def begun(folder: str) -> float:
    """When its latest sync began, in seconds of its file system's clock. Raises OSError."""
    return os.stat(_marker(folder)).st_mtime


def mark(folder: str) -> None:
    """Marks the folder as ours, and that a sync begins now. Raises OSError."""
    here = identity(folder) or os.urandom(16).hex()
    marker: DataMarker = {
        "v": wire.VERSION,
        "time": time.time(),
        "name": os.path.basename(folder),
        "id": here,
    }
    atomic.write_json(_marker(folder), marker)


def identity(folder: str) -> str:
    """A random id of this folder, the same for all hosts that share it; "" where it has none.
    Raises OSError."""
    return str((atomic.read_json(_marker(folder)) or {}).get("id") or "")


def is_of(folder: str, digest: str, attributes: str) -> bool:
    """Whether it is recorded as whole in exactly this state. Raises OSError."""
    record = read(folder)
    return record is not None and (record["digest"], record["attributes"]) == (digest, attributes)


def read(folder: str) -> Optional[DataRecord]:
    """None: the data set is not whole. Raises OSError."""
    stored = atomic.read_json(_record(folder))
    if stored is None:
        return None
    time_s = stored["time"] if isinstance(stored.get("time"), (int, float)) else 0.0
    attributes = str(stored.get("attributes") or "")
    parts = _parts(stored.get("parts"))
    return {
        "v": wire.VERSION,
        "time": time_s,
        "digest": str(stored.get("digest")),
        "attributes": attributes,
        "parts": parts,
    }


def _parts(stored: object) -> Optional[DataParts]:
    if not isinstance(stored, dict) or not isinstance(stored.get("count"), int):
        return None
    return {"count": stored["count"], "of": str(stored.get("of") or "")}


def write(
    folder: str, digest: str, attributes: str = "", parts: Optional[DataParts] = None
) -> None:
    """Records that the data set is whole; `attributes`: as in listing.py, "" where they were not
    set. Raises OSError."""
    record: DataRecord = {
        "v": wire.VERSION,
        "digest": digest,
        "time": time.time(),
        "attributes": attributes,
        "parts": parts,
    }
    atomic.write_json(_record(folder), record, durable=True)


def forget(folder: str) -> None:
    """Removes the record: the data set is not whole any more. Raises OSError."""
    if os.path.exists(_record(folder)):
        os.unlink(_record(folder))


def _marker(folder: str) -> str:
    return folder + ".tfdeploy"


def _record(folder: str) -> str:
    return folder + ".json"
