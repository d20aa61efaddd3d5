"""Which host gets which files of a data set with `split: worker`: files stay where they are as far
as the balance allows."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from tfdeploy.agent.bitmap import bitmap_of
from tfdeploy.agent.listing import Listing
from tfdeploy.errors import UsageError
from tfdeploy.model.answers.broadcast import DATA_HELD
from tfdeploy.model.inventory import Host
from tfdeploy.model.text.units import count
from tfdeploy.operations.broadcast import bitmaps
from tfdeploy.operations.broadcast.wanted import NO_PART, Wanted, row_owners, some
from tfdeploy.operations.outcomes import split as divided
from tfdeploy.operations.outcomes import together
from tfdeploy.planning.parts import NOBODY, Held, parts_of
from tfdeploy.transport.protocols import Fleet, Session
from tfdeploy.tree import DataListing

HELD_S = 600.0


@dataclass(frozen=True)
class Split:
    """`wanted`: what each host gets; a host without an entry gets nothing. `held`: the rows of
    files that hosts have already, of all hosts that were asked. `parts`: files and bytes of each
    part, by number."""

    wanted: Mapping[str, Wanted] = field(default_factory=dict)
    held: Mapping[str, Sequence[int]] = field(default_factory=dict)
    lenders: tuple[Host, ...] = ()
    parts: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Ask:
    """`workers`: the host of each worker, by its number; `whole`: hosts where tasks of other roles
    get all of it."""

    job: str
    name: str
    workers: tuple[str, ...]
    whole: frozenset[str]
    where: str | None = None  # in the job file


@dataclass(frozen=True)
class _HostRows:
    """What lies on one host: rows of the whole data set, and the part that each was in."""

    rows: Sequence[int]
    parts: Sequence[int]
    folder: str


def decide(fleet: Fleet, hosts: tuple[Host, ...], ask: Ask, listing: DataListing) -> Split:
    """`hosts`: all that may have some of it; those without a task may fail. Raises UsageError:
    fewer files than workers."""
    rows = listing.rows
    files = array("Q", (index for index in range(len(rows)) if rows.is_content(index)))
    if len(files) < len(ask.workers):
        what = f"data set {ask.name} has {count(len(files), 'file')} for {len(ask.workers)} workers"
        raise UsageError(
            what,
            where=ask.where,
            next=f"--workers {len(files)}, or more and smaller files, or no `split`",
        )
    there = _ask_host_data(fleet, hosts, ask, rows)
    folders = {host: host_state.folder for host, host_state in there.items()}
    number = {row: file for file, row in enumerate(files)}
    held = {
        host_state.folder: Held([number[row] for row in host_state.rows], host_state.parts)
        for host_state in there.values()
    }
    owners = parts_of(
        [rows.size(row) for row in files], [folders[host] for host in ask.workers], held
    )
    return Split(
        wanted=_wanted(listing, ask, folders, owners, files),
        held={host: host_state.rows for host, host_state in there.items()},
        lenders=tuple(host for host in hosts if host.name in there),
        parts=_parts([rows.size(row) for row in files], owners, len(ask.workers)),
    )


def _ask_host_data(
    fleet: Fleet, hosts: tuple[Host, ...], ask: Ask, rows: Listing
) -> dict[str, _HostRows]:
    packed = rows.pack()

    def one(session: Session) -> _HostRows:
        return _held(session, ask, packed, rows)

    answers, failed = divided(fleet.each(hosts, one))
    needed = {*ask.workers, *ask.whole}
    if bad := {host: error for host, error in failed.items() if host in needed}:
        raise together(f"looking at data {ask.name}", bad, len(hosts))
    return answers


def _held(session: Session, ask: Ask, packed: bytes, rows: Listing) -> _HostRows:
    host = session.host.name
    said = session.agent().call(
        DATA_HELD, {"job": ask.job, "name": ask.name}, blob=packed, timeout_s=HELD_S
    )
    parts = {row: part for part, packed in said.held for row in bitmaps.rows_of(packed, rows, host)}
    there = sorted(parts)
    numbers = [NOBODY if parts[row] == NO_PART else parts[row] for row in there]
    return _HostRows(array("I", there), numbers, said.folder_id or f"only {host}")


def _wanted(
    listing: DataListing,
    ask: Ask,
    folders: Mapping[str, str],
    owners: Sequence[int],
    files: Sequence[int],
) -> dict[str, Wanted]:
    """By host. Hosts that share a folder have the files of all of them."""
    parts = row_owners(listing.rows, owners)
    workers_of: dict[str, set[int]] = {}
    for worker, host in enumerate(ask.workers):
        workers_of.setdefault(folders[host], set()).add(worker)
    wholes = {folders[host] for host in ask.whole}
    wanted_by_host: dict[str, Wanted] = {}
    for folder in {**workers_of, **dict.fromkeys(wholes)}:
        mine: Collection[int] = range(len(ask.workers)) if folder in wholes else workers_of[folder]
        rows = (row for row, part in zip(files, owners, strict=True) if part in mine)
        wanted_by_host[folder] = some(
            listing, parts, len(ask.workers), bitmap_of(rows, len(listing.rows))
        )
    return {
        host: wanted_by_host[folders[host]]
        for host in dict.fromkeys((*ask.workers, *sorted(ask.whole)))
    }


def _parts(sizes: Sequence[int], owners: Sequence[int], count: int) -> tuple[tuple[int, int], ...]:
    files, total = [0] * count, [0] * count
    for size, owner in zip(sizes, owners, strict=True):
        files[owner] += 1
        total[owner] += size
    return tuple(zip(files, total, strict=True))
