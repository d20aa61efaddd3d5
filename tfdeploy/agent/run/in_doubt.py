"""Record which runs on this host are in doubt: a launch has begun to prepare such a run, and the
run is neither committed nor ended.

Each of these runs has a small file, which is written before the run's folder is made. After `serve`
was killed or the power failed, this file tells the next session that the run is incomplete. See
serve/run/sweep.py.
"""

from __future__ import annotations

import os

from tfdeploy.agent import layout
from tfdeploy.agent.annotations import List
from tfdeploy.agent.errors import is_name
from tfdeploy.agent.host.atomic import remove_file, write_bytes, write_json
from tfdeploy.agent.host.private_folder import make_private_folder
from tfdeploy.agent.ownership import check_owners
from tfdeploy.agent.run import leftovers
from tfdeploy.agent.run.find import is_own_file, list_names, own_origin, read_origin
from tfdeploy.agent.run.folder import RunPaths


def mark_in_doubt(paths: RunPaths) -> None:
    """Write the file that marks a run as in doubt. Raises OSError."""
    check_owners(paths.workdir, layout.IN_DOUBT)
    leftovers.forget_doubt(paths)  # an earlier launch may have left files
    make_private_folder(layout.in_doubt_dir(paths.workdir))
    write_json(_mark_path(paths), own_origin())


def is_in_doubt(paths: RunPaths) -> bool:
    return os.path.exists(_mark_path(paths))


def request_abort(paths: RunPaths, plan_digest: str) -> None:
    """Write a file that makes a prepare of this run stop at its next step and remove what it made.
    Does no harm if no prepare is in progress. Raises OSError."""
    write_bytes(_mark_path(paths) + leftovers.ABORT, plan_digest.encode("ascii", "replace"))


def is_aborted(paths: RunPaths, plan_digest: str) -> bool:
    try:
        with open(_mark_path(paths) + leftovers.ABORT, "rb") as file:
            return file.read().decode("ascii", "replace") == plan_digest
    except OSError:
        return False


def forget_abort(paths: RunPaths) -> None:
    """Remove the file that `request_abort` wrote, once no prepare is in progress."""
    remove_file(_mark_path(paths) + leftovers.ABORT)


def list_in_doubt(workdir: str, inventory_name: str = "") -> List[RunPaths]:
    """Return the runs in doubt that this machine prepared, without those of other hosts that share
    the workdir. `inventory_name`: as in find.is_own."""
    try:
        check_owners(workdir, layout.IN_DOUBT)
    except OSError:
        return []
    runs = []
    for name in list_names(layout.in_doubt_dir(workdir)):
        fields = name.split("@")
        if len(fields) != 3 or not all(is_name(word) for word in fields):
            continue
        job, run, host = fields
        if is_own_file(
            read_origin(os.path.join(layout.in_doubt_dir(workdir), name)), host, inventory_name
        ):
            runs.append(RunPaths(layout.host_dir(workdir, job, run, host)))
    return runs


def _mark_path(paths: RunPaths) -> str:
    return layout.in_doubt_file(paths.workdir, paths.job, paths.run, paths.host)
