"""What one host holds in its keep folders goes to other hosts, by way of here: before a mirrored run, and `fetch --onto`.

Listed on all hosts first, so that only what a host lacks is sent; a second launch after the same training sends nothing.
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
from tfdeploy.operations.copy.pull import Source, bring, look
from tfdeploy.operations.emit import note, transfer_news
from tfdeploy.operations.outcomes import all_or_error
from tfdeploy.operations.trusted import below_workdir, only_of
from tfdeploy.transport.protocols import Fleet, Session
from tfdeploy.transport.rsync.transfer import push

_OF_A_WORKER = re.compile(r"(?:^|/)workertemp_\d+/")  # where TensorFlow lets the others write what nobody is to read


@dataclass(frozen=True)
class Lack:
    """What one host needs to hold the same: files to send, and `checkpoint` records that the source does not have."""

    files: tuple[FoundFile, ...]
    aside: tuple[str, ...]


@dataclass(frozen=True)
class Spread:
    """Whose keep folders, of which host. `run`: the one that it is for, where there is one."""

    job: str
    keep: tuple[str, ...]
    source: Host
    run: str | None = None


def spread_keep(fleet: Fleet, spread: Spread, hosts: tuple[Host, ...], emit: Emit) -> None:
    """Every one of `hosts` has what the source keeps for the job. Raises the error of the hosts that cannot."""
    source = spread.source
    others = tuple(host for host in hosts if host.name != source.name)
    wanted = Source("keep", spread.job, keep=spread.keep)
    found = all_or_error("looking at keep", fleet.each((source, *others), lambda session: look(session, wanted).found))
    lacks = {host.name: lack(found[source.name], found[host.name]) for host in others}
    needing = tuple(host for host in others if lacks[host.name].files or lacks[host.name].aside)
    if not needing:
        note(emit, f"`keep` of {source.name} is on all hosts already", run=spread.run)
        return
    only = frozenset(one.path for each in lacks.values() for one in each.files)
    with tempfile.TemporaryDirectory(prefix="tfdeploy-keep-") as folder:
        here = Path(folder, "keep")
        here.mkdir()
        if only:
            fetch = fleet.each((source,), lambda session: bring(session, wanted, here, emit, only=only))
            all_or_error("keep", fetch)
        all_or_error("keep", fleet.each(needing, lambda session: _send(session, here, lacks[session.host.name], spread, emit)))


def lack(source: tuple[FoundFile, ...], there: tuple[FoundFile, ...]) -> Lack:
    """By path, size and time. Links are left where they are."""
    ours = [one for one in source if one.target is None and not _OF_A_WORKER.search(one.path)]
    theirs = {one.path: _stamp(one) for one in there if one.target is None}
    paths = {one.path for one in ours}
    aside = tuple(one.path for one in there if one.is_record and one.target is None and one.path not in paths)
    return Lack(tuple(one for one in ours if theirs.get(one.path) != _stamp(one)), aside)


def _stamp(one: FoundFile) -> tuple[int, int]:
    return one.size, one.mtime_ns // 10**9


def _send(session: Session, here: Path, lacking: Lack, spread: Spread, emit: Emit) -> None:
    agent, host = session.agent(), session.host.name
    total = sum(one.size for one in lacking.files)
    files = [[one.path, *_now(here, one)] for one in lacking.files]
    folder = below_workdir(session, agent.call(KEEP_BEGIN, {"job": spread.job, "bytes": total}).folder)
    _say(emit, host, "begin", 0, total)
    if files:
        names = [os.fsencode(one.path) for one in lacking.files]
        push(
            session.target,
            str(here),
            names,
            folder,
            delete=False,
            on_progress=lambda sent, _: _say(emit, host, "moving", sent, total),
        )
    args = {"job": spread.job, "keep": list(spread.keep), "files": files, "aside": list(lacking.aside)}
    missing = only_of({one.path for one in lacking.files}, agent.call(KEEP_PLACE, args, timeout_s=600).missing, host)
    if missing:
        _say(emit, host, "failed", 0, total)
        raise HostFailed(f"{missing[0]} of `keep` did not arrive whole", where=host, next="the same command again")
    _say(emit, host, "done", total, total)
    set_aside = "".join(f"; {path} is not there and was set aside" for path in lacking.aside)
    note(emit, f"`keep` of {spread.source.name} is on {host} too: {len(files)} files{set_aside}", run=spread.run, host=host)


def _now(here: Path, one: FoundFile) -> tuple[int, int]:
    """Size and time of what was brought."""
    about = (here / one.path).lstat()
    return about.st_size, about.st_mtime_ns


def _say(emit: Emit, host: str, state: str, sent: int, total: int) -> None:
    transfer_news(emit, host, "keep", state, min(sent, total), total)
