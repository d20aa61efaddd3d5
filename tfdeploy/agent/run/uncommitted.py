"""Record which runs on this host are uncommitted. A run is uncommitted from the moment at which its
launch begins to prepare it, until it is committed or has ended.

Each uncommitted run has a small file, which is written before the run's folder is made. If `serve`
is killed or the power fails, the next session finds this file and knows that the run is incomplete.
See serve/run/ending.py.
"""

from __future__ import annotations

import os

from tfdeploy.agent import layout
from tfdeploy.agent.annotations import List
from tfdeploy.agent.host.atomic import read_start, remove_file, write_bytes, write_json
from tfdeploy.agent.host.private_folder import make_private_folder
from tfdeploy.agent.ownership import check_owners
from tfdeploy.agent.run import leftovers
from tfdeploy.agent.run.file_origin import is_own_file, own_file_origin, read_origin
from tfdeploy.agent.run.find import find_uncommitted_runs
from tfdeploy.agent.run.folder import RunPaths


def mark_uncommitted(paths: RunPaths) -> None:
    """Write the file that marks a run as uncommitted. Raises OSError."""
    check_owners(paths.workdir, layout.UNCOMMITTED)
    leftovers.remove_uncommitted_marks(paths)  # those of an earlier launch with this run name
    make_private_folder(layout.uncommitted_marks_dir(paths.workdir))
    write_json(paths.uncommitted_mark_file, own_file_origin())


def is_uncommitted(paths: RunPaths) -> bool:
    return os.path.exists(paths.uncommitted_mark_file)


def request_abort(paths: RunPaths, plan_digest: str) -> None:
    """Write a file that stops the preparation of this run at its next step. The preparation then
    removes what it has made. The file does no harm if the run is not being prepared. Raises
    OSError."""
    write_bytes(paths.uncommitted_mark_file + leftovers.ABORT, _request_bytes(plan_digest))


def is_abort_requested(paths: RunPaths, plan_digest: str) -> bool:
    request = _request_bytes(plan_digest)
    return read_start(paths.uncommitted_mark_file + leftovers.ABORT, len(request) + 1) == request


def _request_bytes(plan_digest: str) -> bytes:
    return plan_digest.encode("ascii", "replace")


def remove_abort_request(paths: RunPaths) -> None:
    """Remove the file that `request_abort` wrote. Called when the preparation of the run has
    ended."""
    remove_file(paths.uncommitted_mark_file + leftovers.ABORT)


def list_own_uncommitted_runs(workdir: str, inventory_name: str) -> List[RunPaths]:
    """Return the runs that this machine began to prepare and that are neither committed nor ended.
    Runs that other hosts prepared in the same workdir are left out. `inventory_name`: as in
    file_origin.is_own_file."""
    try:
        check_owners(workdir, layout.UNCOMMITTED)
    except OSError:
        return []
    return [
        paths
        for paths in find_uncommitted_runs(workdir)
        if is_own_file(read_origin(paths.uncommitted_mark_file), paths.host, inventory_name)
    ]
