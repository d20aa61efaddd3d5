"""Reads and writes the two small files beside the folder of a data set. <name>.tfdeploy says that
tfdeploy made the folder; <name>.json says that the data set is complete."""

from __future__ import annotations

import os
import time

from tfdeploy.agent import wire
from tfdeploy.agent.annotations import TYPE_CHECKING, Optional
from tfdeploy.agent.host import atomic

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import DataMarker, DataParts, DataRecord


def is_made_by_tfdeploy(folder: str) -> bool:
    """Return whether tfdeploy has made this folder."""
    return os.path.exists(_marker_path(folder))


def sync_start_time(folder: str) -> float:
    """Return when the latest sync began, in seconds of the file system's clock. Raises OSError."""
    return os.stat(_marker_path(folder)).st_mtime


def mark_sync_begun(folder: str) -> None:
    """Record that tfdeploy made this folder, and that a sync begins now. Raises OSError."""
    marker: DataMarker = {
        "v": wire.VERSION,
        "time": time.time(),
        "name": os.path.basename(folder),
        "id": folder_id(folder) or os.urandom(16).hex(),
    }
    atomic.write_json(_marker_path(folder), marker)


def folder_id(folder: str) -> str:
    """Return the random id of this folder, or "" if it has none. All hosts that share the folder
    get the same id. Raises OSError."""
    return str((atomic.read_json(_marker_path(folder)) or {}).get("id") or "")


def read_record(folder: str) -> Optional[DataRecord]:
    """Return what is recorded about the data set, or None if the data set is not complete. Raises
    OSError."""
    stored = atomic.read_json(_record_path(folder))
    if stored is None:
        return None
    return {
        "v": wire.VERSION,
        "time": stored["time"] if isinstance(stored.get("time"), (int, float)) else 0.0,
        "digest": str(stored.get("digest")),
        "attributes": str(stored.get("attributes") or ""),
        "parts": _parse_parts(stored.get("parts")),
    }


def _parse_parts(stored: object) -> Optional[DataParts]:
    if not isinstance(stored, dict) or not isinstance(stored.get("count"), int):
        return None
    return {"count": stored["count"], "of": str(stored.get("of") or "")}


def write_record(
    folder: str, digest: str, attributes: str = "", parts: Optional[DataParts] = None
) -> None:
    """Record that the data set is complete. `attributes`: the hash of its modes and times
    (Listing.attributes_digest), or "" if these were not set. Raises OSError."""
    record: DataRecord = {
        "v": wire.VERSION,
        "digest": digest,
        "time": time.time(),
        "attributes": attributes,
        "parts": parts,
    }
    atomic.write_json(_record_path(folder), record, durable=True)


def remove_record(folder: str) -> None:
    """Remove the record, so the data set no longer counts as complete. Raises OSError."""
    atomic.remove_file(_record_path(folder))


def _marker_path(folder: str) -> str:
    return folder + ".tfdeploy"


def _record_path(folder: str) -> str:
    return folder + ".json"
