"""Fetch a run's checkpoints, other files and logs from all hosts at once (`tfdeploy fetch`).

    DIR/keep/<path>          from the host that has the newest checkpoint
    DIR/files/<host>/<path>  other files that a program wrote to its working directory
    DIR/logs/worker-0@n3.log

A host that fails does not stop the others. The run may be live.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tfdeploy.model.answers.files import newest_mtimes_ns
from tfdeploy.model.events import Emit
from tfdeploy.model.inventory import hosts_named
from tfdeploy.model.plan import Plan
from tfdeploy.operations.copy.fetch_budget import FetchBudget
from tfdeploy.operations.copy.pull import (
    FetchSource,
    HostFetch,
    HostFileList,
    fetch_folder,
    list_files,
)
from tfdeploy.operations.copy.pull_logs import fetch_logs
from tfdeploy.operations.copy.rsync_notes import warn_of_rsync_risks
from tfdeploy.operations.emit import emit_transfer, emit_warning
from tfdeploy.operations.outcomes import split_outcomes
from tfdeploy.operations.run_lookup.find_run import hosts_of
from tfdeploy.transport.protocols import Fleet, Outcomes, Session

PARTS = ("keep", "files", "logs")
CLOCK_S = 2.0  # the measured difference between two hosts' clocks may be wrong by this many seconds


@dataclass(frozen=True)
class FetchOptions:
    """The options of a fetch: what to fetch (`parts`), and into which local folder (`destination`).

    `only_hosts`: fetch only from these hosts (None: from all hosts of the run).
    `max_bytes_per_host` limits what one host may send.
    """

    destination: Path
    parts: tuple[str, ...]
    overwrite: bool
    only_hosts: frozenset[str] | None
    max_bytes_per_host: int | None


@dataclass
class FetchResult:
    """The result of a fetch.

    `hosts`: every host's outcome. `keep_from`: the host whose keep folders were fetched, or None if
    no keep folders were fetched.
    """

    hosts: Outcomes[HostFetch]
    keep_from: str | None
    hosts_with_other_keep: list[str]  # hosts whose kept files were not fetched


@dataclass(frozen=True)
class HostListings:
    """The lists of one host's files, which the host sends before any file is fetched.

    `clock_skew_s` is how far the host's clock is ahead of this machine's clock.
    """

    keep: HostFileList | None
    files: HostFileList | None
    clock_skew_s: float


def fetch(fleet: Fleet, plan: Plan, options: FetchOptions, emit: Emit) -> FetchResult:
    """Fetch from all hosts, and return every host's outcome."""
    hosts = hosts_of(plan, options.only_hosts)
    keep, files = (
        FetchSource("keep", plan.job, keep=plan.keep),
        FetchSource("files", plan.job, plan.run),
    )

    def list_host(session: Session) -> HostListings:
        keep_files = list_files(session, keep) if "keep" in options.parts and plan.keep else None
        other_files = list_files(session, files) if "files" in options.parts else None
        return HostListings(keep_files, other_files, session.agent().clock_skew_s)

    listings, failed = split_outcomes(fleet.each(hosts, list_host))
    chosen = host_of_newest_checkpoint(listings, host_of_deciding_task(plan), plan.created)
    with_files = _one_host_per_workdir(listings)

    def fetch_host(session: Session) -> HostFetch:
        began, name, to = time.monotonic(), session.host.name, options.destination
        fetched, budget = HostFetch(), FetchBudget(name, options.max_bytes_per_host)
        if "logs" in options.parts:
            fetched.add(fetch_logs(session, plan, to / "logs", emit, budget))
        if name in with_files:
            fetched.add(
                fetch_folder(
                    session,
                    files,
                    to / "files" / name,
                    emit,
                    budget,
                    overwrite=options.overwrite,
                    top_folder=to,
                )
            )
        if name == chosen:
            fetched.add(
                fetch_folder(session, keep, to / "keep", emit, budget, overwrite=options.overwrite)
            )
        fetched.seconds = time.monotonic() - began
        emit_transfer(
            emit,
            name,
            "all",
            "done",
            fetched.bytes_received,
            fetched.bytes_received,
            end_word="fetched",
        )
        return fetched

    if chosen is not None and failed and "keep" in options.parts:
        emit_warning(
            emit,
            f"the kept files are taken from {chosen}, but newer kept files may be on hosts that "
            f"failed: {', '.join(failed)}",
        )
    if with_files or chosen is not None:
        warn_of_rsync_risks(emit)
    reached = hosts_named(hosts, listings)
    results = {**failed, **fleet.each(reached, fetch_host)}
    others = [
        name
        for name, listed in listings.items()
        if listed.keep is not None
        and listed.keep.files
        and chosen not in (name, *(listed.files.hosts_sharing_workdir if listed.files else ()))
    ]
    return FetchResult({host.name: results[host.name] for host in hosts}, chosen, others)


def host_of_deciding_task(plan: Plan) -> str | None:
    return next((task.host for task in plan.tasks if task.deciding), None)


def host_of_newest_checkpoint(
    listings_by_host: Mapping[str, HostListings], prefer: str | None, since: float
) -> str | None:
    """Return the host of the newest checkpoint, by this machine's clock.

    `prefer`: the host of the deciding task. If it answered, another host counts only if its newest
    checkpoint (or, without one, its newest kept file) was written after the run began, at the time
    `since` in UTC seconds. Older ones are copies of what the run has since replaced or deleted.

    The host `prefer` is chosen instead if its newest kept file is newer than the newest checkpoint,
    or at most CLOCK_S seconds older. If no host has a checkpoint, `prefer` is chosen if it has kept
    files, else the host of the newest kept file.
    """
    mtimes_ns = {
        name: newest_mtimes_ns(listed.keep.files)
        for name, listed in listings_by_host.items()
        if listed.keep is not None and listed.keep.files
    }
    # {host: times of (the newest checkpoint, 0 if there is none; the newest file)}
    times: dict[str, tuple[float, float]] = {}
    for name, (record_ns, file_ns) in mtimes_ns.items():
        skew_s = listings_by_host[name].clock_skew_s
        record, file = record_ns and record_ns / 1e9 - skew_s, file_ns / 1e9 - skew_s
        is_of_run = (record or file) >= since - CLOCK_S
        if is_of_run or name == prefer or prefer not in listings_by_host:
            times[name] = record, file
    records = {name: record for name, (record, _) in times.items() if record}
    latest = max(records.values(), default=0.0)
    if prefer in times and times[prefer][1] >= latest - CLOCK_S:
        return prefer
    newest_hosts = [
        name
        for name in sorted(records or times)
        if not records or records[name] >= latest - CLOCK_S
    ]
    return max(newest_hosts, key=mtimes_ns.__getitem__, default=None)


def _one_host_per_workdir(listings_by_host: Mapping[str, HostListings]) -> set[str]:
    """Return one host for each workdir that holds files.

    One host is enough, because hosts that share a workdir have the same files.
    """
    firsts: set[str] = set()
    for name, listed in listings_by_host.items():
        if (
            listed.files is not None
            and listed.files.files
            and not firsts & set(listed.files.hosts_sharing_workdir)
        ):
            firsts.add(name)
    return firsts
