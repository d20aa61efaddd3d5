"""Decide which host gets which files of a data set with `split: worker`.

If a host already has a file, that host keeps the file. Files are moved only if the workers' parts
would otherwise differ much in size.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from tfdeploy.agent.bitmap import make_bitmap
from tfdeploy.agent.listing import Listing
from tfdeploy.errors import UsageError
from tfdeploy.model.answers.files import DATA_HELD
from tfdeploy.model.inventory import Host
from tfdeploy.operations.broadcast import bitmaps
from tfdeploy.operations.broadcast.wanted import (
    NO_PART,
    WantedFiles,
    part_of_each_row,
    wanted_files_of_part,
)
from tfdeploy.operations.outcomes import combine_errors, split_outcomes
from tfdeploy.planning.parts import NOBODY, HeldFiles, assign_files
from tfdeploy.text.units import format_count
from tfdeploy.transport.protocols import Fleet, Session
from tfdeploy.tree import DataListing

HELD_S = 600.0


@dataclass(frozen=True)
class DataSplit:
    """Which host gets which files of a split data set.

    `wanted_by_host`: the files that each host should have; a host without an entry gets nothing.
    `held_rows_by_host`: the rows of the files that each host already has. `lenders`: the hosts in
    `held_rows_by_host`, which can send these files to others. `part_sizes`: (number of files,
    bytes) of each worker's part.
    """

    wanted_by_host: Mapping[str, WantedFiles] = field(default_factory=dict)
    held_rows_by_host: Mapping[str, Sequence[int]] = field(default_factory=dict)
    lenders: tuple[Host, ...] = ()
    part_sizes: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class SplitRequest:
    """A request to divide the data set `name` among the workers.

    `worker_hosts`: the host of each worker, in the order of worker numbers. `whole_set_hosts`:
    hosts that get all files, because tasks of other roles run there. `job_file_position`: the data
    set's position in the job file, for error messages.
    """

    job: str
    name: str
    worker_hosts: tuple[str, ...]
    whole_set_hosts: frozenset[str]
    job_file_position: str | None = None


@dataclass(frozen=True)
class _HeldRows:
    """The files of a data set that one host has, as row numbers of the whole data set.

    `part_numbers`: for each row, the number of the worker whose part contained the file until now.
    `folder`: an id of the folder with the files. Hosts that share a folder have the same id.
    """

    rows: Sequence[int]
    part_numbers: Sequence[int]
    folder: str


def ask_and_decide_split(
    fleet: Fleet, hosts: tuple[Host, ...], request: SplitRequest, listing: DataListing
) -> DataSplit:
    """Divide the files among the workers.

    `hosts` are all hosts that may have some files. Errors of hosts without a task are ignored.
    Raises UsageError if there are fewer files than workers.
    """
    rows = listing.rows
    files = array("Q", (index for index in range(len(rows)) if rows.has_own_content(index)))
    if len(files) < len(request.worker_hosts):
        what = (
            f"data set {request.name} has {format_count(len(files), 'file')} for "
            f"{len(request.worker_hosts)} workers"
        )
        raise UsageError(
            what,
            where=request.job_file_position,
            next=f"add --workers {len(files)}, or make more and smaller files, or remove `split`",
        )
    host_rows = _collect_held_rows(fleet, hosts, request, rows)
    folders = {host: each.folder for host, each in host_rows.items()}
    number = {row: file for file, row in enumerate(files)}
    sizes = [rows.sizes[row] for row in files]
    held = {
        each.folder: HeldFiles([number[row] for row in each.rows], each.part_numbers)
        for each in host_rows.values()
    }
    file_owners = assign_files(sizes, [folders[host] for host in request.worker_hosts], held)
    return DataSplit(
        wanted_by_host=_wanted_by_host(listing, request, folders, file_owners, files),
        held_rows_by_host={host: each.rows for host, each in host_rows.items()},
        lenders=tuple(host for host in hosts if host.name in host_rows),
        part_sizes=_part_sizes(sizes, file_owners, len(request.worker_hosts)),
    )


def _collect_held_rows(
    fleet: Fleet, hosts: tuple[Host, ...], request: SplitRequest, rows: Listing
) -> dict[str, _HeldRows]:
    """Ask the hosts which files they hold. Raise the error of a host that cannot be asked if tasks
    run on this host."""
    packed = rows.pack()
    answers, failed = split_outcomes(
        fleet.each(hosts, lambda session: _ask_held_rows(session, request, packed, rows))
    )
    needed = {*request.worker_hosts, *request.whole_set_hosts}
    if bad := {host: error for host, error in failed.items() if host in needed}:
        raise combine_errors(f"looking at data {request.name}", bad, len(hosts))
    return answers


def _ask_held_rows(
    session: Session, request: SplitRequest, packed: bytes, rows: Listing
) -> _HeldRows:
    """Ask one host which files it has, and which worker's part contained each file until now."""
    host = session.host.name
    answer = session.agent().call(
        DATA_HELD, {"job": request.job, "name": request.name}, blob=packed, timeout_s=HELD_S
    )
    parts = {
        row: part
        for part, packed in answer.held
        for row in bitmaps.rows_from_bitmap(packed, rows, host)
    }
    host_rows = sorted(parts)
    numbers = [NOBODY if parts[row] == NO_PART else parts[row] for row in host_rows]
    return _HeldRows(array("I", host_rows), numbers, answer.folder_id or f"only {host}")


def _wanted_by_host(
    listing: DataListing,
    request: SplitRequest,
    folder_by_host: Mapping[str, str],
    file_owners: Sequence[int],
    files: Sequence[int],
) -> dict[str, WantedFiles]:
    """Return what each host should have.

    Hosts that share a folder should each have the files of all these hosts.
    """
    parts = part_of_each_row(listing.rows, file_owners)
    workers_of: dict[str, set[int]] = {}
    for worker, host in enumerate(request.worker_hosts):
        workers_of.setdefault(folder_by_host[host], set()).add(worker)
    whole_folders = {folder_by_host[host] for host in request.whole_set_hosts}
    wanted_by_host: dict[str, WantedFiles] = {}
    for folder in {**workers_of, **dict.fromkeys(whole_folders)}:
        folder_parts: Collection[int] = (
            range(len(request.worker_hosts)) if folder in whole_folders else workers_of[folder]
        )
        rows = (row for row, part in zip(files, file_owners, strict=True) if part in folder_parts)
        wanted_by_host[folder] = wanted_files_of_part(
            listing, parts, len(request.worker_hosts), make_bitmap(rows, len(listing.rows))
        )
    return {
        host: wanted_by_host[folder_by_host[host]]
        for host in dict.fromkeys((*request.worker_hosts, *sorted(request.whole_set_hosts)))
    }


def _part_sizes(
    sizes: Sequence[int], file_owners: Sequence[int], part_count: int
) -> tuple[tuple[int, int], ...]:
    files, total = [0] * part_count, [0] * part_count
    for size, owner in zip(sizes, file_owners, strict=True):
        files[owner] += 1
        total[owner] += size
    return tuple(zip(files, total, strict=True))
