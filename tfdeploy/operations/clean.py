"""`tfdeploy clean`: what no run needs any more is listed with its size, and removed from the hosts and from this machine.

Each host decides again for each thing as it removes it: a list grows old. Hosts that share a workdir are cleaned once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec

from tfdeploy.errors import BadAnswer, HostFailed, TfdeployError
from tfdeploy.model.answers.clean import (
    CLEAN_EVERYTHING,
    CLEAN_LIST,
    CLEAN_REMOVE,
    CLEAN_WORKDIR,
    CleanItem,
)
from tfdeploy.model.answers.hosts import LockHolder
from tfdeploy.model.answers.verb import Flow, Nothing
from tfdeploy.model.clean import EndedRun, Rules, goes, kept, runs_that_stay
from tfdeploy.model.events import Emit
from tfdeploy.model.inventory import Host
from tfdeploy.model.plan import Plan
from tfdeploy.operations.find_run import hosts_of
from tfdeploy.operations.lock import locked_where_possible
from tfdeploy.operations.outcomes import split
from tfdeploy.store.runs import RunStore
from tfdeploy.transport.protocols import Fleet, Session, Stream

MOST_ITEMS = 1_000_000
SILENCE_S = 600.0  # a large folder is measured, or removed
_GONE_ALREADY = "it is gone already"
_NO_FAULT = (_GONE_ALREADY, "it is needed again")  # why a thing stays or is missing because of another operator


@dataclass(frozen=True)
class Found:
    """By host: what may go, and what was found and stays. `errors`: hosts that gave no answer.

    `kept`: (job, run) of runs on hosts that do not go, also by --newest and --older.
    """

    going: Mapping[str, tuple[CleanItem, ...]]
    staying: Mapping[str, tuple[CleanItem, ...]] = field(default_factory=dict)
    errors: Mapping[str, TfdeployError] = field(default_factory=dict)
    shared: Mapping[str, str] = field(default_factory=dict)  # host -> another one that says it has the same workdir
    kept: frozenset[tuple[str, str]] = frozenset()

    @property
    def bytes(self) -> int:
        return sum(item.bytes for items in self.going.values() for item in items)


@dataclass(frozen=True)
class Removed:
    """By host: what is gone, and what should have gone and is still there. `errors`: hosts that broke off.

    `runs_left`: (job, run) of runs that were to be removed and that a host may still have.
    """

    gone: Mapping[str, tuple[CleanItem, ...]]
    left: Mapping[str, tuple[CleanItem, ...]]
    errors: Mapping[str, TfdeployError]
    runs_left: frozenset[tuple[str, str]] = frozenset()


def find(fleet: Fleet, hosts: tuple[Host, ...], jobs: tuple[str, ...] | None, rules: Rules, now: float) -> Found:
    """What no run needs. `jobs`: of these alone; None: of all. `now`: UTC seconds."""
    args: dict[str, object] = {}
    args |= {} if jobs is None else {"jobs": list(jobs)}
    args |= {} if rules.named is None else {"named": list(rules.named)}
    args |= {"secret_files": rules.secret_paths} if rules.secret_paths else {}
    listed, errors, shared = _listed(fleet, hosts, args)
    stay = runs_that_stay(listed, rules, now)
    going = _those(listed, lambda item: goes(item, stay))
    staying = _those(listed, lambda item: bool(item.stays))
    return Found(going, staying, errors, shared, frozenset(stay))


def find_everything(fleet: Fleet, hosts: tuple[Host, ...]) -> Found:
    """All that tfdeploy has put there. What stays is a run that is alive, or foreign."""
    listed, errors, shared = _listed(fleet, hosts, {"everything": True})
    going = _those(listed, lambda item: not item.stays)
    staying = _those(listed, lambda item: bool(item.stays))
    return Found(going, staying, errors, shared)


def _those(
    listed: Mapping[str, tuple[CleanItem, ...]], is_wanted: Callable[[CleanItem], bool]
) -> dict[str, tuple[CleanItem, ...]]:
    """The wanted items of each host."""
    return {host: tuple(filter(is_wanted, items)) for host, items in listed.items()}


def remove(
    fleet: Fleet,
    found: Found,
    hosts: tuple[Host, ...],
    jobs: tuple[str, ...] | None,
    rules: Rules,
    holder: LockHolder,
    emit: Emit,
) -> Removed:
    """Job by job, each under its lock on the hosts; then what belongs to no job."""
    asked = tuple(host for host in hosts if found.going.get(host.name))
    told: dict[str, list[CleanItem]] = {host.name: [] for host in asked}
    errors: dict[str, TfdeployError] = {}
    rule_args: dict[str, object] = {"named": list(rules.named or ()), "secret_files": rules.secret_paths}
    for job in sorted({item.job for items in found.going.values() for item in items if item.job}):
        here = tuple(host for host in asked if any(item.job == job for item in found.going[host.name]))
        with locked_where_possible(fleet, here, job, "clean", holder, emit) as (lock, busy):
            errors.update(busy)
            _each(fleet, lock.hosts, partial(_remove_of_job, found, job, rule_args), told, errors)
    beside = tuple(host for host in asked if any(not item.job for item in found.going[host.name]))
    _each(fleet, beside, partial(_remove_beside, found, jobs), told, errors)
    return _removed(found, told, errors)


def remove_everything(fleet: Fleet, found: Found, hosts: tuple[Host, ...], holder: LockHolder) -> Removed:
    """A host on which a run is alive, or a job is locked, removes nothing and says so."""

    def remove_all(session: Session) -> Iterable[CleanItem]:
        return _stream(session, CLEAN_EVERYTHING, holder=holder)

    asked = tuple(host for host in hosts if found.going.get(host.name))
    told: dict[str, list[CleanItem]] = {host.name: [] for host in asked}
    errors: dict[str, TfdeployError] = {}
    _each(fleet, asked, remove_all, told, errors)
    return _removed(found, told, errors)


@dataclass(frozen=True)
class LocalRuns:
    """This machine's records of runs that no host keeps.

    `going`: run -> job and bytes. The other records stay: `unended` runs are on no host, and this machine
    did not see their end; `elsewhere` runs have a host that was not asked or did not answer.
    """

    going: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    unended: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()

    @property
    def bytes(self) -> dict[str, int]:
        return {run: size for run, (_, size) in self.going.items()}

    def without(self, runs: Collection[tuple[str, str]]) -> dict[str, int]:
        """Return run -> bytes of `going` without `runs` (job, run), which are still on a host."""
        return {run: size for run, (job, size) in self.going.items() if (job, run) not in runs}


def local_runs(
    store: RunStore,
    found: Found,
    hosts: tuple[Host, ...],
    jobs: tuple[str, ...] | None,
    rules: Rules,
    now: float,
) -> LocalRuns:
    """Return this machine's records of runs of `jobs` (None: of all), and which of them may be removed.

    A host counts as asked if a host with the same connection was, whatever its name: many inventories have an n1.
    """
    answered = {_connection(host) for host in hosts if host.name not in found.errors}
    going, staying = _runs_in(found.going.values()), _runs_in(found.staying.values())
    forgotten, unended, elsewhere = [], [], []
    for plan in store.plans():
        key = plan.job, plan.run
        if key in staying or key in found.kept or (jobs is not None and plan.job not in jobs):
            continue
        if not all(_connection(host) in answered for host in _recorded_hosts(plan)):
            elsewhere.append(plan.run)
        elif key in going or store.has_ended(plan.run):
            forgotten.append(EndedRun(plan.job, plan.run, plan.created))
        else:
            unended.append(plan.run)
    keeps = kept([run for run in forgotten if (run.job, run.run) not in going], rules, now)
    sizes = {run.run: (run.job, store.usage(run.run)) for run in forgotten if (run.job, run.run) not in keeps}
    return LocalRuns(sizes, tuple(unended), tuple(elsewhere))


def _runs_in(lists: Iterable[Iterable[CleanItem]]) -> set[tuple[str, str]]:
    return {(item.job, item.name) for items in lists for item in items if item.kind == "run"}


def _connection(host: Host | None) -> tuple[object, ...] | None:
    return None if host is None else (host.address, host.port, host.user, host.jump, host.workdir)


def _recorded_hosts(plan: Plan) -> tuple[Host | None, ...]:
    """Return the run's hosts as recorded; (None,) if the record does not say how they were reached."""
    try:
        return hosts_of(plan)
    except msgspec.MsgspecError:
        return (None,)


def _listed(
    fleet: Fleet, hosts: tuple[Host, ...], args: Mapping[str, object]
) -> tuple[dict[str, tuple[CleanItem, ...]], dict[str, TfdeployError], dict[str, str]]:
    """By host. Of hosts that share a workdir the first has what lies there, the others have nothing, and are named."""

    def ask(session: Session) -> tuple[str, tuple[CleanItem, ...]]:
        stream = session.agent().stream(CLEAN_LIST, args, silence_s=SILENCE_S)
        items = tuple(_items(session, stream))
        return (stream.value.workdir_id if stream.value is not None else ""), items

    good, errors = split(fleet.each(hosts, ask))
    first: dict[str, str] = {}
    listed, shared = {}, {}
    for host, (workdir, items) in good.items():
        if workdir and first.setdefault(workdir, host) != host:
            shared[host], items = first[workdir], ()
        listed[host] = items
    return listed, errors, shared


def _things(found: Found, session: Session, job: str) -> list[list[str]]:
    return [[item.kind, item.name] for item in found.going[session.host.name] if item.job == job]


def _remove_of_job(found: Found, job: str, rule_args: Mapping[str, object], session: Session) -> Iterable[CleanItem]:
    return _stream(session, CLEAN_REMOVE, job=job, things=_things(found, session, job), **rule_args)


def _remove_beside(found: Found, jobs: tuple[str, ...] | None, session: Session) -> Iterable[CleanItem]:
    of_jobs: dict[str, object] = {} if jobs is None else {"jobs": list(jobs)}
    return _stream(session, CLEAN_WORKDIR, things=_things(found, session, ""), **of_jobs)


def _stream(session: Session, verb: Flow[CleanItem, Nothing], **args: object) -> Iterable[CleanItem]:
    return _items(session, session.agent().stream(verb, args, silence_s=SILENCE_S))


def _items(session: Session, stream: Stream[CleanItem, Any]) -> Iterator[CleanItem]:
    for count, (item, _) in enumerate(stream):
        if count >= MOST_ITEMS:
            raise BadAnswer(f"it names more than {MOST_ITEMS:,} things", where=session.host.name)
        yield item


def _each(
    fleet: Fleet,
    hosts: tuple[Host, ...],
    ask: Callable[[Session], Iterable[CleanItem]],
    told: dict[str, list[CleanItem]],
    errors: dict[str, TfdeployError],
) -> None:
    """Adds what each host tells, also up to where it broke off."""

    def take(session: Session) -> None:
        for item in ask(session):
            told[session.host.name].append(item)

    for host, error in split(fleet.each(hosts, take))[1].items():
        errors.setdefault(host, error)


def _removed(found: Found, told: Mapping[str, list[CleanItem]], errors: dict[str, TfdeployError]) -> Removed:
    gone = {host: tuple(item for item in items if not item.stays) for host, items in told.items()}
    left = {host: tuple(item for item in items if item.stays and item.stays not in _NO_FAULT) for host, items in told.items()}
    for host, items in left.items():
        if items and host not in errors:
            first = items[0]
            errors[host] = HostFailed(f"{first.kind} {first.name} stays: {first.stays}", where=host)
    runs_left: set[tuple[str, str]] = set()
    for host, listed in found.going.items():
        absent = [item for item in told.get(host, ()) if item.stays in ("", _GONE_ALREADY)]
        runs_left |= _runs_in([listed]) - _runs_in([absent])
    return Removed(gone, left, errors, frozenset(runs_left))
