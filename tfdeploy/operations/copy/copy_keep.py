"""The keep folders of one host are copied to other hosts through this machine: before a mirrored run, and for `fetch --onto`.

All hosts list theirs first, so that only missing files are sent; a second launch after the same training sends nothing.
"""

from __future__ import annotations

import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tfdeploy.errors import HostFailed
from tfdeploy.model.answers.files import KEEP_BEGIN, KEEP_PLACE
from tfdeploy.model.events import Emit
from tfdeploy.model.inventory import Host
from tfdeploy.model.listing import FoundFile
from tfdeploy.operations.confine import below_workdir, only_of
from tfdeploy.operations.copy.pull import Source, fetch_folder, list_files
from tfdeploy.operations.copy.rsync_notes import note_rsync
from tfdeploy.operations.emit import emit_transfer, note
from tfdeploy.operations.outcomes import all_or_error
from tfdeploy.transport.protocols import Fleet, Session
from tfdeploy.transport.rsync.transfer import push

_OF_A_WORKER = re.compile(r"(?:^|/)workertemp_\d+/")  # temporary copies of TensorFlow's non-chief workers


@dataclass(frozen=True)
class KeepDifference:
    """What makes a host the same as the source: files to send, and `checkpoint` records to set aside, which the source lacks."""

    files: tuple[FoundFile, ...]
    aside: tuple[str, ...]


@dataclass(frozen=True)
class KeepCopy:
    """Which keep folders of which job are copied from `source`. `run`: the run they are copied for, if any."""

    job: str
    keep: tuple[str, ...]
    source: Host
    run: str | None = None


def copy_keep(fleet: Fleet, copy: KeepCopy, hosts: tuple[Host, ...], emit: Emit) -> None:
    """Copies the job's keep folders from the source to each of `hosts`. Raises one error for the hosts that failed."""
    source = copy.source
    others = tuple(host for host in hosts if host.name != source.name)
    wanted = Source("keep", copy.job, keep=copy.keep)
    found = all_or_error("looking at keep", fleet.each((source, *others), lambda session: list_files(session, wanted).found))
    differences = {host.name: keep_difference(found[source.name], found[host.name]) for host in others}
    needing = tuple(host for host in others if differences[host.name].files or differences[host.name].aside)
    if not needing:
        note(emit, f"`keep` of {source.name} is on all hosts already", run=copy.run)
        return
    only = frozenset(file.path for difference in differences.values() for file in difference.files)
    with tempfile.TemporaryDirectory(prefix="tfdeploy-keep-") as folder:
        here = Path(folder, "keep")
        here.mkdir()
        if only:
            note_rsync(emit)
            fetch = fleet.each((source,), lambda session: fetch_folder(session, wanted, here, emit, only=only))
            all_or_error("keep", fetch)
        all_or_error(
            "keep", fleet.each(needing, lambda session: _send(session, here, differences[session.host.name], copy, emit))
        )


def keep_difference(source: tuple[FoundFile, ...], there: tuple[FoundFile, ...]) -> KeepDifference:
    """Compares by path, size and mtime in whole seconds. Links are not copied."""
    ours = [one for one in source if one.target is None and not _OF_A_WORKER.search(one.path)]
    theirs = {one.path: _stamp(one) for one in there if one.target is None}
    paths = {one.path for one in ours}
    aside = tuple(one.path for one in there if one.is_record and one.target is None and one.path not in paths)
    return KeepDifference(tuple(one for one in ours if theirs.get(one.path) != _stamp(one)), aside)


def _stamp(one: FoundFile) -> tuple[int, int]:
    return one.size, one.mtime_ns // 10**9


def _send(session: Session, here: Path, difference: KeepDifference, copy: KeepCopy, emit: Emit) -> None:
    agent, host = session.agent(), session.host.name
    total = sum(one.size for one in difference.files)
    files = [[one.path, *_size_and_mtime(here, one)] for one in difference.files]
    folder = below_workdir(session, agent.call(KEEP_BEGIN, {"job": copy.job, "bytes": total}).folder)
    _report(emit, host, "begin", 0, total)
    if files:
        names = [os.fsencode(one.path) for one in difference.files]
        push(
            session.target,
            str(here),
            names,
            folder,
            delete=False,
            on_progress=lambda sent, _: _report(emit, host, "moving", sent, total),
        )
    args = {"job": copy.job, "keep": list(copy.keep), "files": files, "aside": list(difference.aside)}
    missing = only_of({one.path for one in difference.files}, agent.call(KEEP_PLACE, args, timeout_s=600).missing, host)
    if missing:
        _report(emit, host, "failed", 0, total)
        raise HostFailed(f"{missing[0]} of `keep` did not arrive whole", where=host, next="the same command again")
    _report(emit, host, "done", total, total)
    set_aside = "".join(f"; {path} is not there and was set aside" for path in difference.aside)
    note(emit, f"`keep` of {copy.source.name} is on {host} too: {len(files)} files{set_aside}", run=copy.run, host=host)


def _size_and_mtime(here: Path, one: FoundFile) -> tuple[int, int]:
    """Size in bytes and mtime in ns of the file as it was fetched."""
    about = (here / one.path).lstat()
    return about.st_size, about.st_mtime_ns


def _report(emit: Emit, host: str, state: str, sent: int, total: int) -> None:
    emit_transfer(emit, host, "keep", state, min(sent, total), total)
