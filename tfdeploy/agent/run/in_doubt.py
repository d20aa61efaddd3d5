"""Record which runs on this host are in doubt: a launch has begun to prepare such a run, and the
run is neither committed nor ended.

Each of these runs has a small file, which is written before the run's folder is made. After `serve`
was killed or the power failed, this file tells the next session that the run is incomplete. See
serve/run/ending.py.
"""

from __future__ import annotations

import os

from tfdeploy.agent import layout
from tfdeploy.agent.annotations import List
from tfdeploy.agent.host.atomic import remove_file, write_bytes, write_json
from tfdeploy.agent.host.private_folder import make_private_folder
from tfdeploy.agent.ownership import check_owners
from tfdeploy.agent.run import leftovers
from tfdeploy.agent.run.file_origin import is_own_file, own_file_origin, read_origin
from tfdeploy.agent.run.find import folders_in_doubt
from tfdeploy.agent.run.folder import RunPaths


def mark_in_doubt(paths: RunPaths) -> None:
    """Write the file that marks a run as in doubt. Raises OSError."""
    check_owners(paths.workdir, layout.IN_DOUBT)
    leftovers.remove_doubt_files(paths)  # an earlier launch may have left files
    make_private_folder(layout.in_doubt_dir(paths.workdir))
    write_json(paths.doubt_file, own_file_origin())


def is_in_doubt(paths: RunPaths) -> bool:
    return os.path.exists(paths.doubt_file)


def request_abort(paths: RunPaths, plan_digest: str) -> None:
    """Write a file that makes the preparation of this run stop at its next step and remove what it
    has made. Does no harm if the run is not being prepared. Raises OSError."""
    write_bytes(paths.doubt_file + leftovers.ABORT, plan_digest.encode("ascii", "replace"))


def is_abort_requested(paths: RunPaths, plan_digest: str) -> bool:
    try:
        with open(paths.doubt_file + leftovers.ABORT, encoding="ascii", errors="replace") as file:
            return file.read() == plan_digest
    except OSError:
        return False


def remove_abort_request(paths: RunPaths) -> None:
    """Remove the file that `request_abort` wrote. Called when the preparation of the run has
    ended."""
    remove_file(paths.doubt_file + leftovers.ABORT)


def own_runs_in_doubt(workdir: str, inventory_name: str = "") -> List[RunPaths]:
    """Return the runs that this machine began to prepare and that are neither committed nor ended.
    Runs that other hosts prepared in the same workdir are left out. `inventory_name`: as in
    file_origin.is_own_file."""
    try:
        check_owners(workdir, layout.IN_DOUBT)
    except OSError:
        return []
    return [
        paths
        for paths in folders_in_doubt(workdir)
        if is_own_file(read_origin(paths.doubt_file), paths.host, inventory_name)
    ]
