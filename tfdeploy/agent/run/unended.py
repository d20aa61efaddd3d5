"""Find the releases and environments of runs that have not ended on some host. They stay when old
ones are removed.

In a shared workdir the run may be another host's. A damaged run may be alive: what can be read of
its part counts.
"""

from __future__ import annotations

from tfdeploy.agent import layout
from tfdeploy.agent.annotations import TYPE_CHECKING, Callable, Iterator, List, Optional, Set
from tfdeploy.agent.host.atomic import read_json
from tfdeploy.agent.run import shown_plan
from tfdeploy.agent.run.find import host_names, run_names

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Unchecked


def releases(workdir: str, job: str) -> Iterator[str]:
    """Return the releases of that job by name. Raises OSError: what cannot be read may be in
    use."""
    return (str(part.get("release")) for part in _parts(workdir, job, _read))


def path_prepends(workdir: str, job: str) -> Iterator[str]:
    """Return the folders that its tasks have first on PATH."""
    for part in _parts(workdir, job, _read_or_nothing):
        for task in _list(part.get("tasks")):
            paths = _list(task.get("path_prepend")) if isinstance(task, dict) else []
            yield from (path for path in paths if isinstance(path, str))


def has_unreadable(workdir: str, job: str) -> bool:
    """True if a run of the job may be alive whose part or state cannot be read, so that what it
    uses is not known."""
    for run in run_names(workdir, job):
        for host in host_names(workdir, job, run):
            try:
                state = read_json(layout.state_file(workdir, job, run, host))
                if (state or {}).get("phase") != "ended" and read_json(
                    layout.part_file(workdir, job, run, host)
                ) is None:
                    return True
            except OSError:
                return True
    return False


def data_sets(workdir: str, job: str) -> Optional[Set[str]]:
    """Return the data sets that they read; None: not known for one of them. Raises OSError."""
    names: Set[str] = set()
    for run in run_names(workdir, job):
        states = (
            _read(layout.state_file(workdir, job, run, host))
            for host in host_names(workdir, job, run)
        )
        if any(state.get("phase") != "ended" for state in states):
            named = shown_plan.read(workdir, job, run)["data"]
            if named is None:
                return None
            names.update(named)
    return names


def _parts(workdir: str, job: str, read: Callable[[str], Unchecked]) -> Iterator[Unchecked]:
    for run in run_names(workdir, job):
        for host in host_names(workdir, job, run):
            if read(layout.state_file(workdir, job, run, host)).get("phase") != "ended":
                yield read(layout.part_file(workdir, job, run, host))


def _read(path: str) -> Unchecked:
    return read_json(path) or {}


def _read_or_nothing(path: str) -> Unchecked:
    try:
        return _read(path)
    except OSError:
        return {}


def _list(value: object) -> List[object]:
    return value if isinstance(value, list) else []
