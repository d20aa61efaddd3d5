"""List items that no run needs, with their sizes, and remove them, for `tfdeploy clean`.

Items are on hosts and on this machine. A list may be stale, so each host checks each item again
before it removes the item. Hosts that share a workdir are cleaned once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from tfdeploy.errors import BadAnswer, HostFailed, TfdeployError
from tfdeploy.model.answers.clean import (
    CLEAN_EVERYTHING,
    CLEAN_LIST,
    CLEAN_REMOVE,
    CLEAN_WORKDIR,
    CleanItem,
    CleanRules,
    find_staying_runs,
    must_be_removed,
    select_kept_runs,
)
from tfdeploy.model.answers.hosts import LockHolder
from tfdeploy.model.events import Emit
from tfdeploy.model.inventory import Host, Hosts
from tfdeploy.model.plan import Plan
from tfdeploy.operations.lock import HostLocks
from tfdeploy.operations.outcomes import split_outcomes
from tfdeploy.operations.run_lookup.find_run import hosts_of
from tfdeploy.store.runs import RunStore
from tfdeploy.text.typed import Args, EmptyAnswer, StreamingVerb
from tfdeploy.transport.protocols import Errors, Fleet, Session, Stream

MOST_ITEMS = 1_000_000  # one host may report at most this many items
SILENCE_S = 600.0  # timeout in seconds for measuring or removing one large folder
_GONE_ALREADY = "it is gone already"
# If the agent did not remove an item for one of these reasons, this does not count as a failure.
_NO_FAULT = (_GONE_ALREADY, "it is needed again")
Items = Mapping[str, tuple[CleanItem, ...]]  # {host: its items}


@dataclass(frozen=True)
class CleanCandidates:
    """The items that may be removed (`removable_items`), and the items that stay.

    `errors` has the hosts without an answer. `same_workdir_as` maps a host to another host with the
    same workdir: the items are listed only for that other host. `kept_runs` contains a pair
    (job, run) for each run that stays on hosts, for example because of --newest or --older.
    """

    removable_items: Items
    staying_items: Items = field(default_factory=dict)
    errors: Mapping[str, TfdeployError] = field(default_factory=dict)
    same_workdir_as: Mapping[str, str] = field(default_factory=dict)
    kept_runs: frozenset[tuple[str, str]] = frozenset()


@dataclass(frozen=True)
class RemovalResult:
    """The items that are gone, and the items that could not be removed (`failed_items`).

    `errors` has the hosts that failed. `job_runs_still_present` has a pair (job, run) for each run
    that was to be removed but may still be on a host.
    """

    removed_items: Items
    failed_items: Items
    errors: Mapping[str, TfdeployError]
    job_runs_still_present: frozenset[tuple[str, str]]


def find_candidates(
    fleet: Fleet, hosts: Hosts, jobs: tuple[str, ...] | None, rules: CleanRules, now: float
) -> CleanCandidates:
    """Return the items of `jobs` (None: of all jobs) that no run needs.

    `now` is in UTC seconds.
    """
    args = {"jobs": jobs, "named": rules.kept_data_sets, "secret_files": rules.secret_paths_by_job}
    listed, errors, shared = _list_items(fleet, hosts, args)
    stay = find_staying_runs(listed, rules, now)
    going = _filter_items(listed, lambda item: must_be_removed(item, stay))
    return CleanCandidates(
        going, _filter_items(listed, _is_staying), errors, shared, frozenset(stay)
    )


def find_all_items(fleet: Fleet, hosts: Hosts) -> CleanCandidates:
    """Return all items that tfdeploy put on the hosts.

    Items that cannot be removed, such as those of a live run, are listed as staying.
    """
    listed, errors, shared = _list_items(fleet, hosts, {"everything": True})
    return CleanCandidates(
        _filter_items(listed, lambda item: not item.stays),
        _filter_items(listed, _is_staying),
        errors,
        shared,
    )


def _list_items(fleet: Fleet, hosts: Hosts, args: Args) -> tuple[Items, Errors, dict[str, str]]:
    """Return (items by host, errors, {host: another host with the same workdir}).

    If several hosts share a workdir, all items are listed for the first of these hosts.
    """

    def ask(session: Session) -> tuple[str, tuple[CleanItem, ...]]:
        stream = session.agent().stream(CLEAN_LIST, args, silence_s=SILENCE_S)
        items = tuple(_limit_items(session, stream))
        return (stream.value.workdir_id if stream.value is not None else ""), items

    answers, errors = split_outcomes(fleet.each(hosts, ask))
    first: dict[str, str] = {}
    listed, shared = {}, {}
    for host, (workdir, items) in answers.items():
        if workdir and first.setdefault(workdir, host) != host:
            shared[host], items = first[workdir], ()
        listed[host] = items
    return listed, errors, shared


def _limit_items(session: Session, stream: Stream[CleanItem, Any]) -> Iterator[CleanItem]:
    """Yield the items of a host. Raise BadAnswer if there are more than MOST_ITEMS."""
    for count, (item, _) in enumerate(stream):
        if count >= MOST_ITEMS:
            what = f"the host lists more than {MOST_ITEMS:,} items"
            raise BadAnswer(what, where=session.host.name)
        yield item


def _filter_items(listed: Items, is_wanted: Callable[[CleanItem], bool]) -> Items:
    return {host: tuple(filter(is_wanted, items)) for host, items in listed.items()}


def _is_staying(item: CleanItem) -> bool:
    return bool(item.stays)


def remove_candidates(
    fleet: Fleet,
    candidates: CleanCandidates,
    hosts: Hosts,
    jobs: tuple[str, ...] | None,
    rules: CleanRules,
    holder: LockHolder,
    emit: Emit,
) -> RemovalResult:
    """Remove the removable items of each job, while the lock of this job is held.

    After that, remove the removable items that belong to no job.
    """
    removal = _Removal(fleet, candidates, hosts)
    args = {"named": rules.kept_data_sets, "secret_files": rules.secret_paths_by_job}
    for job in sorted(
        {item.job for items in candidates.removable_items.values() for item in items if item.job}
    ):
        lock = HostLocks(fleet, removal.hosts_with_candidates(job), job, "clean", holder, emit)
        with lock.hold_where_possible() as errors:
            removal.errors.update(errors)
            removal.remove_items(lock.hosts, CLEAN_REMOVE, {"job": job, **args}, job)
    removal.remove_items(removal.hosts_with_candidates(""), CLEAN_WORKDIR, {"jobs": jobs}, "")
    return removal.result()


def remove_everything(
    fleet: Fleet, candidates: CleanCandidates, hosts: Hosts, holder: LockHolder
) -> RemovalResult:
    """Remove everything that tfdeploy put on the hosts.

    A host with a live run or a locked job removes nothing and reports the reason.
    """
    removal = _Removal(fleet, candidates, hosts)
    removal.remove_items(removal.hosts, CLEAN_EVERYTHING, {"holder": holder})
    return removal.result()


class _Removal:
    """Asks hosts to remove items, and collects their reports, even if a host fails midway."""

    def __init__(self, fleet: Fleet, candidates: CleanCandidates, hosts: Hosts) -> None:
        self._fleet, self._going = fleet, candidates.removable_items
        self.hosts = tuple(host for host in hosts if candidates.removable_items.get(host.name))
        self.errors: Errors = {}
        self._reported: dict[str, list[CleanItem]] = {host.name: [] for host in self.hosts}

    def hosts_with_candidates(self, job: str) -> Hosts:
        """Return the hosts that have removable items of `job` ("": items that belong to no job)."""
        return tuple(host for host in self.hosts if self._candidate_names(host.name, job))

    def remove_items(
        self,
        hosts: Hosts,
        verb: StreamingVerb[CleanItem, EmptyAnswer],
        args: Args,
        job: str | None = None,
    ) -> None:
        """Ask hosts to remove the removable items of `job` ("": items that belong to no job).

        If `job` is None, the request names no items, and the hosts remove everything.
        """

        def remove_on_host(session: Session) -> None:
            host = session.host.name
            named = {} if job is None else {"things": self._candidate_names(host, job)}
            stream = session.agent().stream(verb, {**args, **named}, silence_s=SILENCE_S)
            for item in _limit_items(session, stream):
                self._reported[host].append(item)

        self.errors = {**split_outcomes(self._fleet.each(hosts, remove_on_host))[1], **self.errors}

    def _candidate_names(self, host: str, job: str) -> list[tuple[str, str]]:
        return [(item.kind, item.name) for item in self._going[host] if item.job == job]

    def result(self) -> RemovalResult:
        gone, remaining = {}, {}
        job_runs_still_present: set[tuple[str, str]] = set()
        for host, items in self._reported.items():
            gone[host] = tuple(item for item in items if not item.stays)
            remaining[host] = tuple(item for item in items if item.stays not in ("", *_NO_FAULT))
            for first in remaining[host][:1]:
                problem = f"{first.kind} {first.name} stays: {first.stays}"
                self.errors.setdefault(host, HostFailed(problem, where=host))
            absent = [item for item in items if item.stays in ("", _GONE_ALREADY)]
            job_runs_still_present |= _runs_in([self._going[host]]) - _runs_in([absent])
        return RemovalResult(gone, remaining, self.errors, frozenset(job_runs_still_present))


@dataclass(frozen=True)
class LocalRunRecords:
    """This machine's records of runs, sorted by whether they may be removed.

    `removable_records` are the records that may be removed: {run: (job, bytes)}. All other records
    stay, such as those of `runs_without_end` (runs that are on no host, but whose end this machine
    has not seen) and `runs_with_silent_hosts` (runs with a host that was not asked or did not
    answer).
    """

    removable_records: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    runs_without_end: tuple[str, ...] = ()
    runs_with_silent_hosts: tuple[str, ...] = ()

    def removable_sizes(self, excluded_runs: Collection[tuple[str, str]] = ()) -> dict[str, int]:
        """Return {run: size of its record in bytes} for the records in `removable_records`.

        The runs in `excluded_runs`, which are pairs (job, run), are left out.
        """
        return {
            run: size
            for run, (job, size) in self.removable_records.items()
            if (job, run) not in excluded_runs
        }


def sort_local_runs(
    store: RunStore,
    candidates: CleanCandidates,
    hosts: Hosts,
    jobs: tuple[str, ...] | None,
    rules: CleanRules,
    now: float,
) -> LocalRunRecords:
    """Sort this machine's records of the runs of `jobs` by whether they may be removed.

    If `jobs` is None, the records of all jobs are sorted. A record may be removed only if all hosts
    of its run have answered. Hosts are recognised by their connections and not by their names,
    because hosts of different inventories may have the same name.
    """
    answered = {_connection_key(host) for host in hosts if host.name not in candidates.errors}
    going, staying = (
        _runs_in(candidates.removable_items.values()),
        _runs_in(candidates.staying_items.values()),
    )
    # {(job, run): when the run was created}, for each run whose record may be removed.
    created: dict[tuple[str, str], float] = {}
    unended, elsewhere = [], []
    for plan in store.plans():
        key = plan.job, plan.run
        if (
            key in staying
            or key in candidates.kept_runs
            or (jobs is not None and plan.job not in jobs)
        ):
            continue
        if not _connection_keys(plan) <= answered:
            elsewhere.append(plan.run)
        elif key in going or store.has_ended(plan.run):
            created[key] = plan.created
        else:
            unended.append(plan.run)
    keeps = select_kept_runs(
        {key: when for key, when in created.items() if key not in going}, rules, now
    )
    sizes = {
        run: (job, store.disk_usage_bytes(run)) for job, run in created if (job, run) not in keeps
    }
    return LocalRunRecords(sizes, tuple(unended), tuple(elsewhere))


def _runs_in(lists: Iterable[Iterable[CleanItem]]) -> set[tuple[str, str]]:
    """Return (job, run) of the runs among the items."""
    return {(item.job, item.name) for items in lists for item in items if item.kind == "run"}


def _connection_key(host: Host) -> tuple[object, ...]:
    """Return the values that identify the connection to a host."""
    return host.address, host.port, host.user, host.jump, host.workdir


def _connection_keys(plan: Plan) -> set[tuple[object, ...]]:
    """Return the values that identify the connections to the run's hosts.

    If the record of the run is invalid, return {()}, which is the connection to no host.
    """
    try:
        return {_connection_key(host) for host in hosts_of(plan)}
    except msgspec.MsgspecError:
        return {()}
