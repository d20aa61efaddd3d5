"""Removes old releases and stale staging folders. Keeps the newest releases and those that a run
may still need."""

from __future__ import annotations

import os
import time

from tfdeploy.agent import layout
from tfdeploy.agent.annotations import Dict, List, Set, Tuple
from tfdeploy.agent.serve.release import manifest as release_manifest
from tfdeploy.agent.serve.release.manifest import SUFFIX

STALE_S = 86400.0  # a staging folder without a change for this time is removed
KEEP = 5  # how many of a job's newest releases are kept


def remove_old_releases(workdir: str, job: str, current: str) -> None:
    """Remove all releases except `current`, the KEEP newest and those in use. Also removes
    staging folders that are older than STALE_S."""
    folder = layout.releases_dir(workdir, job)
    newest, staging = _releases_and_staging(folder)
    stale = {name for name, changed in staging.items() if changed < time.time() - STALE_S}
    for name in stale | _unused_beyond_newest(workdir, job, newest, KEEP) - {current}:
        _remove_release(os.path.join(folder, name))


def reuse_oldest_as_staging(workdir: str, job: str, release: str, staging: str) -> None:
    """Rename the oldest unused release to `staging`, the folder in which `release` will be
    received. Most files of the old release are already the hard links that `release` needs, so they
    need not be removed and made again.

    Do nothing if `staging` exists, or if fewer than KEEP releases are stored.
    """
    folder = layout.releases_dir(workdir, job)
    newest = _releases_and_staging(folder)[0]
    surplus = _unused_beyond_newest(workdir, job, newest, KEEP - 1) - {release}
    oldest = next((os.path.join(folder, name) for name in newest[::-1] if name in surplus), None)
    if oldest is not None and not os.path.isdir(staging):
        release_manifest.remove_manifest(oldest)
        try:
            os.rename(oldest, staging)
        except FileNotFoundError:
            pass  # another host that shares the workdir has removed the release


def list_surplus_releases(workdir: str, job: str) -> Set[str]:
    """Return the releases that are neither among the KEEP newest nor in use. Raises OSError if a
    run cannot be read, because that run may use any release."""
    return _unused_beyond_newest(
        workdir, job, _releases_and_staging(layout.releases_dir(workdir, job))[0], KEEP
    )


def _unused_beyond_newest(
    workdir: str, job: str, newest_first: List[str], keep_count: int
) -> Set[str]:
    if not newest_first[keep_count:]:
        return set()
    # This import is not at the top, because the first sync of a job does not need the module, and
    # Python would have to compile it during that sync.
    from tfdeploy.agent.run import unended

    return set(newest_first[keep_count:]) - set(unended.releases_in_use(workdir, job))


def _releases_and_staging(folder: str) -> Tuple[List[str], Dict[str, float]]:
    """Return two values: the names of the releases, newest first, and {name: time of the last
    change} of the hidden folders, which are staging folders."""
    times: Dict[str, float] = {}
    for entry in os.scandir(folder):
        name = entry.name[: -len(SUFFIX)] if entry.name.endswith(SUFFIX) else entry.name
        times[name] = max(times.get(name, 0.0), _mtime(entry.path))
    staging = {name: changed for name, changed in times.items() if name.startswith(".")}
    newest_first = sorted(times.keys() - staging.keys(), key=times.__getitem__, reverse=True)
    return newest_first, staging


def _mtime(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except FileNotFoundError:
        return 0.0  # another host that shares the workdir has removed it


def _remove_release(release: str) -> None:
    # The manifest is removed first, so that a partly removed folder does not count as a release.
    release_manifest.remove_manifest(release)
    remove_folder(release)


def remove_folder(path: str) -> None:
    """Remove the folder if it exists."""
    if os.path.lexists(path):
        from shutil import rmtree  # imported only if there is something to remove

        rmtree(path, ignore_errors=True)
