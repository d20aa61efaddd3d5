"""The releases and environments of runs that have not ended on some host: they are kept where old ones are removed.

In a shared workdir the run may be another host's. A damaged run may be alive: what can be read of its part counts.
"""

from __future__ import annotations

from tfdeploy.agent import layout
from tfdeploy.agent.annotations import TYPE_CHECKING, Callable, Iterator, List
from tfdeploy.agent.host.atomic import read_json
from tfdeploy.agent.run.find import host_names, run_names

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Unchecked


def releases(workdir: str, job: str) -> Iterator[str]:
    """Of that job, by name. Raises OSError: what cannot be read may be in use."""
    return (str(part.get("release")) for part in _parts(workdir, job, _read))


def path_prepends(workdir: str, job: str) -> Iterator[str]:
    """The folders that its tasks have first on PATH."""
    for part in _parts(workdir, job, _read_or_nothing):
        for task in _list(part.get("tasks")):
            found = _list(task.get("path_prepend")) if isinstance(task, dict) else []
            yield from (path for path in found if isinstance(path, str))


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
