"""Finds and switches the two versions that a data set may have. Runs read the version in the data
set's folder. The next version is in a second folder beside it.

A live run keeps reading the version with which it began. Once no live run on any host that shares
this workdir reads the data set, the next version replaces the folder.
"""

from __future__ import annotations

import os

from tfdeploy.agent import layout
from tfdeploy.agent.annotations import TYPE_CHECKING, Optional, Tuple
from tfdeploy.agent.host import removal
from tfdeploy.agent.host.atomic import list_names
from tfdeploy.agent.run import check_files, shown_plan
from tfdeploy.agent.run.find import host_folders, run_names
from tfdeploy.agent.run.live_runs import has_live_processes
from tfdeploy.agent.serve.datasets import record as data_record

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import ShownPlan

NEXT = "next"


def hidden_sibling_path(folder: str, suffix: str) -> str:
    """Return the path `.NAME.SUFFIX` beside the folder of the data set NAME. tfdeploy keeps a file
    or folder of its own there. Names of data sets never begin with a dot."""
    return os.path.join(os.path.dirname(folder), ".%s.%s" % (os.path.basename(folder), suffix))


def newest_version_folder(folder: str) -> str:
    """If the next version of the data set is complete but not yet installed, return its folder.
    Otherwise return `folder`, the installed version, which runs read."""
    next_folder = hidden_sibling_path(folder, NEXT)
    return next_folder if data_record.read_record(next_folder) is not None else folder


def install_next_version(workdir: str, job: str, name: str) -> None:
    """Replace the folder of the data set by its next version, if there is one and no live run reads
    the data set. Raises OSError."""
    folder = layout.data_dir(workdir, job, name)
    next_folder = hidden_sibling_path(folder, NEXT)
    record = data_record.read_record(next_folder)
    if record is None or not os.path.isdir(next_folder) or find_live_run(workdir, job, name):
        return
    old_folder = hidden_sibling_path(folder, "old")
    removal.remove(old_folder)
    data_record.remove_record(folder)
    if os.path.isdir(folder):
        os.rename(folder, old_folder)
    os.rename(next_folder, folder)
    data_record.write_record(folder, record["digest"], record["attributes"], record["parts"])
    data_record.remove_record(next_folder)
    removal.remove(old_folder)


def install_next_versions(workdir: str, job: str) -> None:
    """Install the next version of each data set of a job, as install_next_version does. Raises
    OSError."""
    parent = os.path.dirname(layout.data_dir(workdir, job, "x"))
    end = "." + NEXT + ".json"
    for each in list_names(parent):
        if each.startswith(".") and each.endswith(end):
            install_next_version(workdir, job, each[1 : -len(end)])


def find_live_run(workdir: str, job: str, name: str) -> Optional[Tuple[str, ShownPlan]]:
    """Return (name, plan) of a live run that reads the data set, or None if there is none. Runs of
    other hosts that share the workdir count too. This host's boot id says nothing about such a run,
    so the locks of a run decide whether the run is alive."""
    for run in run_names(workdir, job):
        plan = shown_plan.read_plan(workdir, job, run)
        if plan["data"] is not None and name not in plan["data"]:
            continue
        for paths in host_folders(workdir, job, run):
            if not check_files.find_damage(paths) and has_live_processes(paths):
                return run, plan
    return None
