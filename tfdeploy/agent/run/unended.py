"""Find the releases, environments and data sets that a cleanup must keep, because they are used by
a run that has not ended on all its hosts.

In a shared workdir, such a run may belong to another host. A run with damaged files may still be
alive too, so everything that its readable files name counts as used.
"""

from __future__ import annotations

from tfdeploy.agent import layout
from tfdeploy.agent.annotations import TYPE_CHECKING, Callable, Iterator, List, Optional, Set
from tfdeploy.agent.host.atomic import read_json
from tfdeploy.agent.run import shown_plan
from tfdeploy.agent.run.find import host_folders, run_names
from tfdeploy.agent.run.folder import RunPaths

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Unchecked

    Read = Callable[[str], Optional[Unchecked]]


def releases_in_use(workdir: str, job: str) -> Iterator[str]:
    """Yield the names of the releases that the job's unended runs use. Raises OSError if a run
    cannot be read, because it is then unknown which release that run uses."""
    return (str(part.get("release")) for part in _parts_of_unended_runs(workdir, job, read_json))


def path_prepends_in_use(workdir: str, job: str) -> Iterator[str]:
    """Yield the folders that the job's unended runs put at the front of PATH for their tasks."""
    for part in _parts_of_unended_runs(workdir, job, _read_or_none):
        for task in _list_or_empty(part.get("tasks")):
            paths = _list_or_empty(task.get("path_prepend")) if isinstance(task, dict) else []
            yield from (path for path in paths if isinstance(path, str))


def has_unreadable_run(workdir: str, job: str) -> bool:
    """Return whether the job has a run that may be alive, but whose part.json or state.json cannot
    be read. It is then unknown what that run uses."""
    for run in run_names(workdir, job):
        for paths in host_folders(workdir, job, run):
            try:
                if not _has_ended(paths, read_json) and not paths.has_readable_part():
                    return True
            except OSError:
                return True
    return False


def data_sets_in_use(workdir: str, job: str) -> Optional[Set[str]]:
    """Return the names of the data sets that the job's unended runs read. Return None if the plan
    of one of these runs does not say which it reads. Raises OSError."""
    names: Set[str] = set()
    for run in run_names(workdir, job):
        folders = host_folders(workdir, job, run)
        if not all(_has_ended(paths, read_json) for paths in folders):
            data_sets = shown_plan.read_plan(workdir, job, run)["data"]
            if data_sets is None:
                return None
            names.update(data_sets)
    return names


def _parts_of_unended_runs(workdir: str, job: str, read: Read) -> Iterator[Unchecked]:
    for run in run_names(workdir, job):
        for paths in host_folders(workdir, job, run):
            if not _has_ended(paths, read):
                yield read(paths.file(layout.PART)) or {}


def _has_ended(paths: RunPaths, read: Read) -> bool:
    return (read(paths.state_file) or {}).get("phase") == "ended"


def _read_or_none(path: str) -> Optional[Unchecked]:
    try:
        return read_json(path)
    except OSError:
        return None


def _list_or_empty(value: object) -> List[object]:
    return value if isinstance(value, list) else []
