"""Find which of the `hosts/<host>/` folders of a run belongs to this machine. There may be several
such folders, because hosts may share a workdir, and cloned machines may even share a hostname.

A single folder belongs to this machine. Of several folders, it is the one that this machine has
written since it booted. If there is none, it is the folder that states this machine's hostname;
among clones, it is the one with this machine's name in the session's inventory. Reads only.
"""

from __future__ import annotations

import os

from tfdeploy.agent import layout
from tfdeploy.agent.annotations import TYPE_CHECKING, Iterator, List, Optional
from tfdeploy.agent.errors import is_name
from tfdeploy.agent.host import atomic, boot_id
from tfdeploy.agent.ownership import agent_name
from tfdeploy.agent.run import check_files
from tfdeploy.agent.run.folder import RunPaths

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Origin


def boot_name() -> str:
    """Return an id of the current boot of this machine or container. Cloned machines share hostname
    and machine id, but never a boot."""
    # Containers share the boot id of their machine, but not its process namespace.
    sees = os.stat("/proc/self/ns/pid").st_ino
    return agent_name({"boot": boot_id().encode("ascii"), "sees": b"%d" % sees})[:16]


def own_origin() -> Origin:
    """Return the fields by which this machine later recognises a file as its own: see is_own_file."""
    return {"boot_id": boot_id(), "hostname": os.uname().nodename, "place": boot_name()}


def read_origin(path: str) -> Origin:
    """Return what a file says about the machine that wrote it (see `own_origin`). Fields that the file
    lacks are left out. Raises OSError."""
    fields = atomic.read_json(path) or {}
    origin: Origin = {}
    if isinstance(fields.get("boot_id"), str):
        origin["boot_id"] = fields["boot_id"]
    if isinstance(fields.get("hostname"), str):
        origin["hostname"] = fields["hostname"]
    if isinstance(fields.get("place"), str):
        origin["place"] = fields["place"]
    return origin


def is_own_file(file_origin: Origin, host: str, inventory_name: str) -> bool:
    """Return whether this machine, under the name `host`, wrote the file whose origin is `file_origin`.
    `inventory_name`: this machine's name in the session's inventory, or "" if the session did not say."""
    if file_origin.get("place") == boot_name():
        return True
    if file_origin.get("place") and file_origin.get("boot_id") == boot_id():
        return False  # another container on this machine wrote it
    if file_origin.get("hostname") is None:
        return file_origin.get("boot_id") == boot_id()
    return file_origin.get("hostname") == os.uname().nodename and inventory_name in ("", host)


def job_names(workdir: str) -> List[str]:
    """Return the jobs that have runs in this workdir."""
    names = filter(is_name, list_names(workdir))
    return [name for name in names if os.path.isdir(layout.runs_dir(workdir, name))]


def run_names(workdir: str, job: str) -> List[str]:
    return list(filter(is_name, list_names(layout.runs_dir(workdir, job))))


def list_names(folder: str) -> List[str]:
    """Return the sorted names in a folder. The list is empty if the folder is missing, is no folder
    or cannot be read."""
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def host_names(workdir: str, job: str, run: str) -> List[str]:
    """Return the hosts whose folders of this run in this workdir have a part.json. If there are
    none, the run is unknown in this workdir."""
    names = list_names(os.path.join(layout.run_dir(workdir, job, run), "hosts"))
    return [name for name in names if os.path.exists(layout.part_file(workdir, job, run, name))]


def find_damage(workdir: str, job: str, run: str) -> Optional[str]:
    """Return what is wrong with the files of a run in this workdir. Return None if the files of at
    least one host are intact, or if no host has files of the run."""
    folder = layout.run_dir(workdir, job, run)
    if not os.path.isdir(folder):
        return "%s is no folder" % folder if os.path.lexists(folder) else None
    problem = None
    for name in host_names(workdir, job, run):
        wrong = check_files.find_damage(workdir, job, run, name)
        if wrong is None:
            return None
        problem = problem or "%s: %s" % (folder, wrong)
    return problem


def other_runs(paths: RunPaths) -> Iterator[RunPaths]:
    """Yield the folders, for the same host, of the job's other runs. Damaged ones are left out."""
    for run in run_names(paths.workdir, paths.job):
        is_damaged = check_files.find_damage(paths.workdir, paths.job, run, paths.host)
        if run != paths.run and not is_damaged:
            yield RunPaths(layout.host_dir(paths.workdir, paths.job, run, paths.host))


def find_own_host(workdir: str, job: str, run: str, inventory_name: str = "") -> Optional[str]:
    """Return this machine's name in the inventory of that run. Return None if this machine has no
    files of the run, or only damaged ones. `inventory_name`: as in is_own."""
    names = host_names(workdir, job, run)
    own = (
        names
        if len(names) == 1
        else _own_hosts(workdir, job, run, names, inventory_name if inventory_name in names else "")
    )
    return next(
        (name for name in own if check_files.find_damage(workdir, job, run, name) is None), None
    )


def _own_hosts(
    workdir: str, job: str, run: str, names: List[str], inventory_name: str
) -> Iterator[str]:
    """Yield the hosts whose folders this machine wrote, the most likely one first. A thousand hosts
    may share the workdir, so only one file of each folder is read, and the folder of the host
    `inventory_name` is read first."""
    this_boot, before = boot_name(), []
    for name in sorted(names, key=lambda name: name != inventory_name):
        try:
            file_origin = read_origin(layout.state_file(workdir, job, run, name))
        except OSError:
            continue
        if file_origin.get("place") == this_boot:
            yield name
        elif is_own_file(file_origin, name, inventory_name):
            before.append(name)
    yield from before


def find_run_paths(
    workdir: str, job: str, run: str, inventory_name: str = ""
) -> Optional[RunPaths]:
    """Return the paths of this host's folder of a run, or None if there is no such folder. `inventory_name`:
    as in own_host."""
    host = find_own_host(workdir, job, run, inventory_name)
    return None if host is None else RunPaths(layout.host_dir(workdir, job, run, host))
