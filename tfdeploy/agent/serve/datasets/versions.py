"""Finds and switches the versions of a data set. There may be two: the installed one and the next
one.

Runs read the version in the data set's folder. The next version is in a second folder beside it. A
live run keeps reading the version with which it began. Once no live run on any host that shares
this workdir reads the data set, the next version replaces the folder.

Beside the folder of each version there are two small files. <name>.tfdeploy says that tfdeploy made
the folder; <name>.json says that the data set is complete.
"""

from __future__ import annotations

import os
import time

from tfdeploy.agent import layout, wire
from tfdeploy.agent.annotations import TYPE_CHECKING, Optional
from tfdeploy.agent.host import atomic, removal
from tfdeploy.agent.host.atomic import list_names
from tfdeploy.agent.run import check_files, shown_plan
from tfdeploy.agent.run.find import host_folders, run_names
from tfdeploy.agent.run.live_runs import has_live_processes

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import DataMarker, DataParts, DataRecord

NEXT = "next"


def hidden_sibling_path(folder: str, suffix: str) -> str:
    """Return the path `.NAME.SUFFIX` beside the folder of the data set NAME. tfdeploy keeps a file
    or folder of its own there. Names of data sets never begin with a dot."""
    return os.path.join(os.path.dirname(folder), ".%s.%s" % (os.path.basename(folder), suffix))


def newest_version_folder(folder: str) -> str:
    """If the next version of the data set is complete but not yet installed, return its folder.
    Otherwise return `folder`, the installed version, which runs read."""
    next_folder = hidden_sibling_path(folder, NEXT)
    return next_folder if read_record(next_folder) is not None else folder


def install_next_version(workdir: str, job: str, name: str) -> None:
    """Replace the folder of the data set by its next version, if there is one and no live run reads
    the data set. Raises OSError."""
    folder = layout.data_dir(workdir, job, name)
    next_folder = hidden_sibling_path(folder, NEXT)
    record = read_record(next_folder)
    if record is None or not os.path.isdir(next_folder) or has_live_run(workdir, job, name):
        return
    old_folder = hidden_sibling_path(folder, "old")
    removal.remove(old_folder)
    remove_record(folder)
    if os.path.isdir(folder):
        os.rename(folder, old_folder)
    os.rename(next_folder, folder)
    write_record(folder, record)
    remove_record(next_folder)
    removal.remove(old_folder)


def install_next_versions(workdir: str, job: str) -> None:
    """Install the next version of each data set of a job, as install_next_version does. Raises
    OSError."""
    parent = os.path.dirname(layout.data_dir(workdir, job, "x"))
    end = "." + NEXT + ".json"
    for each in list_names(parent):
        if each.startswith(".") and each.endswith(end):
            install_next_version(workdir, job, each[1 : -len(end)])


def has_live_run(workdir: str, job: str, name: str) -> bool:
    """Return whether a live run reads the data set. Runs of other hosts that share the workdir
    count too. Whether a run is alive is decided by its locks, because this host cannot compare its
    boot id with the boot id of another host's run."""
    for run in run_names(workdir, job):
        data_sets = shown_plan.read_plan(workdir, job, run)["data"]
        if data_sets is not None and name not in data_sets:
            continue
        for paths in host_folders(workdir, job, run):
            if not check_files.find_damage(paths) and has_live_processes(paths):
                return True
    return False


# --- the two small files beside the folder


def is_made_by_tfdeploy(folder: str) -> bool:
    """Return whether tfdeploy has made this folder."""
    return os.path.exists(_marker_path(folder))


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
        "digest": str(stored.get("digest")),
        "attributes": str(stored.get("attributes") or ""),
        "parts": _parse_parts(stored.get("parts")),
    }


def _parse_parts(stored: object) -> Optional[DataParts]:
    if not isinstance(stored, dict) or not isinstance(stored.get("count"), int):
        return None
    return {"count": stored["count"], "of": str(stored.get("of") or "")}


def write_record(folder: str, record: DataRecord) -> None:
    """Record that the data set is complete. Raises OSError."""
    fields = {"v": wire.VERSION, "time": time.time(), **record}
    atomic.write_json(_record_path(folder), fields, durable=True)


def remove_record(folder: str) -> None:
    """Remove the record, so the data set no longer counts as complete. Raises OSError."""
    atomic.remove_file(_record_path(folder))


def _marker_path(folder: str) -> str:
    return folder + ".tfdeploy"


def _record_path(folder: str) -> str:
    return folder + ".json"
