"""List runs in doubt: a launch has begun to prepare them on this host, and they are neither
committed nor ended.

Each has a small file, which is written before the run's folder is made. It tells the next session
which runs a killed serve or a power cut has left incomplete. See serve/run/sweep.py.
"""

from __future__ import annotations

import os

from tfdeploy.agent import layout
from tfdeploy.agent.annotations import List
from tfdeploy.agent.errors import NAME
from tfdeploy.agent.host.atomic import write_bytes, write_json
from tfdeploy.agent.host.private_folder import make_private
from tfdeploy.agent.ownership import check
from tfdeploy.agent.run import leftovers
from tfdeploy.agent.run.find import is_own, list_names, origin, read_origin
from tfdeploy.agent.run.folder import RunPaths


def mark_in_doubt(paths: RunPaths) -> None:
    """Write the file of a run in doubt. Raises OSError."""
    check(paths.workdir, layout.IN_DOUBT)
    leftovers.forget_doubt(paths)  # left by an earlier launch
    make_private(layout.in_doubt_dir(paths.workdir))
    write_json(_path(paths), origin())


def is_in_doubt(paths: RunPaths) -> bool:
    return os.path.exists(_path(paths))


def abort(paths: RunPaths, plan_digest: str) -> None:
    """Make a prepare that may be in progress stop at its next step and remove what it made. Raises
    OSError."""
    write_bytes(_path(paths) + leftovers.ABORT, plan_digest.encode("ascii", "replace"))


def is_aborted(paths: RunPaths, plan_digest: str) -> bool:
    try:
        with open(_path(paths) + leftovers.ABORT, "rb") as file:
            return file.read().decode("ascii", "replace") == plan_digest
    except OSError:
        return False


def forget_abort(paths: RunPaths) -> None:
    """Remove the mark of `abort`, once no prepare is in progress."""
    try:
        os.unlink(_path(paths) + leftovers.ABORT)
    except FileNotFoundError:
        pass


def of_this_host(workdir: str, told: str = "") -> List[RunPaths]:
    """Return the runs in doubt that this machine prepared: other hosts may share the workdir.
    `told`: see find.is_own."""
    try:
        check(workdir, layout.IN_DOUBT)
    except OSError:
        return []
    runs = []
    for name in list_names(layout.in_doubt_dir(workdir)):
        fields = name.split("@")
        if len(fields) != 3 or not all(NAME.match(word) for word in fields):
            continue
        job, run, host = fields
        if is_own(read_origin(os.path.join(layout.in_doubt_dir(workdir), name)), host, told):
            runs.append(RunPaths(layout.host_dir(workdir, job, run, host)))
    return runs


def _path(paths: RunPaths) -> str:
    return layout.in_doubt(paths.workdir, paths.job, paths.run, paths.host)
