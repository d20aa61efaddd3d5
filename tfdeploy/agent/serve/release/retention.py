"""Which releases stay: the newest few, and those that a run may still need. Removes the others and
old staging."""

from __future__ import annotations

import os
import time

from tfdeploy.agent import layout
from tfdeploy.agent.annotations import Dict, List, Set, Tuple
from tfdeploy.agent.run import unended
from tfdeploy.agent.serve.release import manifest as release_manifest
from tfdeploy.agent.serve.release.manifest import SUFFIX

STALE_S = 86400.0


def remove_old(workdir: str, job: str, current: str, keep: int) -> None:
    """Removes all but `current`, the `keep` newest releases, those in use, and staging folders of
    the last day (STALE_S)."""
    folder = layout.releases_dir(workdir, job)
    newest, staging = _by_age(folder)
    stale = {name for name, changed in staging.items() if changed < time.time() - STALE_S}
    for name in stale | _surplus(workdir, job, newest, keep) - {current}:
        _remove(os.path.join(folder, name))


def surplus(workdir: str, job: str, keep: int) -> Set[str]:
    """The releases that are neither among the `keep` newest nor in use. Raises OSError: what cannot
    be read may be in use."""
    return _surplus(workdir, job, _by_age(layout.releases_dir(workdir, job))[0], keep)


def _surplus(workdir: str, job: str, newest: List[str], keep: int) -> Set[str]:
    return set(newest[keep:]) - set(unended.releases(workdir, job))


def _by_age(folder: str) -> Tuple[List[str], Dict[str, float]]:
    """(the releases, newest first; the hidden folders, and when each was changed last)."""
    times: Dict[str, float] = {}
    for entry in os.scandir(folder):
        name = entry.name[: -len(SUFFIX)] if entry.name.endswith(SUFFIX) else entry.name
        times[name] = max(times.get(name, 0.0), _changed(entry.path))
    staging = {name: changed for name, changed in times.items() if name.startswith(".")}
    return sorted(
        times.keys() - staging.keys(), key=lambda name: times[name], reverse=True
    ), staging


def _changed(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except FileNotFoundError:
        return 0.0  # another host of a shared workdir removes old ones too


def _remove(release: str) -> None:
    release_manifest.forget(release)  # first: so a half removed folder is no release
    remove_folder(release)


def remove_folder(path: str) -> None:
    """As far as it is there."""
    if os.path.lexists(path):
        from shutil import rmtree  # loaded where there is something to remove

        rmtree(path, ignore_errors=True)
