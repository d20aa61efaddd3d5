"""Find the run that a command is about: by its id or a unique prefix, or as the job's newest run.

The hosts know which runs exist. The store of this machine is only a cache.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from tfdeploy.agent import wire
from tfdeploy.errors import TfdeployError, UsageError
from tfdeploy.model.answers.runs import RUNS, ListedRun
from tfdeploy.model.inventory import Host, Hosts, hosts_named
from tfdeploy.model.plan import Plan
from tfdeploy.operations.outcomes import combine_errors, split_outcomes
from tfdeploy.operations.run_lookup.host_plans import (
    DifferentPlans,
    PlanRequest,
    add_missing_hosts,
    fetch_plan,
    make_stop_plan,
)
from tfdeploy.store.runs import RunStore
from tfdeploy.text.names import fold_names
from tfdeploy.text.row_values import iso_z
from tfdeploy.text.typed import convert
from tfdeploy.text.units import format_count
from tfdeploy.transport.protocols import Errors, Fleet

CLOCK_TOLERANCE_S = 300.0  # a start more than this many seconds in the future counts as wrong


@dataclass
class FoundRun:
    """One run as the hosts of the inventory report it.

    `starts_by_host` is {host: the time in UTC seconds at which the run started, as this host
    reports it}.
    """

    run: str
    job: str
    live: bool = False
    committed: bool = False
    starts_by_host: dict[str, float] = field(default_factory=dict)
    # Hosts that hold files of the run, by their names in the inventory.
    holders: list[str] = field(default_factory=list)
    states: dict[str, wire.HostRunState | None] = field(default_factory=dict)
    tasks: dict[str, wire.TaskStatus] = field(default_factory=dict)
    # {host: what is wrong with the files of the run on this host}
    damaged: dict[str, str] = field(default_factory=dict)

    def add_report(self, host: str, row: ListedRun) -> None:
        """Add a host's report of the run.

        Hosts that share a workdir also report about each other. What a host reports about itself
        replaces what others report about that host.
        """
        self.live = self.live or row.live
        self.committed = self.committed or row.committed
        self.holders.append(host)
        if (owner := row.host_state.host) == host or owner not in self.states:
            self.states[owner] = row.host_state
        for status in row.tasks:
            if status.host == host or status.task not in self.tasks:
                self.tasks[status.task] = status
        stamps = [row.host_state.started, *(status.started for status in row.tasks)]
        if any(stamps):
            self.starts_by_host[host] = min(filter(None, stamps))

    @property
    def is_readable(self) -> bool:
        return not self.damaged or bool(self.holders)

    @property
    def started(self) -> float | None:
        """Return the median of the times in `starts_by_host`; None if no host reports a start.

        If the number of times is even, the earlier of the two middle times is returned. So the
        result can be wrong only if at least half of the hosts report a wrong time.
        """
        return (
            sorted(self.starts_by_host.values())[(len(self.starts_by_host) - 1) // 2]
            if self.starts_by_host
            else None
        )

    @property
    def hosts_with_future_start(self) -> list[str]:
        """Return the hosts that report a start in the future: their clocks are ahead, or they lie.

        Returns [] if `started` (the median of the reported starts) is not in the future, because
        wrong reports do no harm then.
        """
        latest = time.time() + CLOCK_TOLERANCE_S
        return (
            [host for host, start in self.starts_by_host.items() if start > latest]
            if (self.started or 0.0) > latest
            else []
        )


def find_runs(fleet: Fleet, hosts: Hosts, job: str | None) -> tuple[list[FoundRun], Errors]:
    """Return all runs of the job, and the errors of hosts that do not answer.

    If `job` is None, return the runs of all jobs.
    """
    answers, silent = split_outcomes(
        fleet.each(hosts, lambda session: session.agent().call(RUNS, {"job": job}))
    )
    runs_by_name: dict[tuple[str, str], FoundRun] = {}
    for host, rows in answers.items():
        for row in rows:
            run = runs_by_name.setdefault((row.job, row.run), FoundRun(row.run, row.job))
            if row.damaged is None:
                run.add_report(host, row)
            else:
                run.damaged[host] = row.damaged
    return list(runs_by_name.values()), silent


def newest_first(runs: Iterable[FoundRun], store: RunStore) -> list[FoundRun]:
    """Sort runs by their start, newest first.

    If this machine launched the run, the start is the time that this machine recorded. Otherwise
    the start is the time that the hosts report. Runs that start in the future come last.
    """
    now = time.time()

    def order(run: FoundRun) -> tuple[bool, float, str]:
        launched_at = store.launched_at(run.run)
        if launched_at is not None:
            return True, launched_at, run.run
        return not run.hosts_with_future_start, min(run.started or 0.0, now), run.run

    return sorted(runs, key=order, reverse=True)


def starts_in_future(run: FoundRun, store: RunStore) -> bool:
    """Return whether the run's start is in the future, according to reports of hosts.

    Returns False if this machine has recorded when it launched the run, because that time is used
    instead.
    """
    return bool(run.hosts_with_future_start) and store.launched_at(run.run) is None


def future_start_warning(run: FoundRun) -> str:
    hosts = fold_names(run.hosts_with_future_start)
    return (
        f"according to {hosts}, {run.run} starts in the future, at {iso_z(run.started)}; it "
        "therefore counts as the oldest run"
    )


def find_run(
    fleet: Fleet,
    hosts: Hosts,
    store: RunStore,
    *,
    prefix: str | None,
    job: str | None,
    live_first: bool = False,
    regex_by_metric: Mapping[str, str] | None = None,
    plan_errors: Errors | None = None,
    warnings: list[str] | None = None,
) -> Plan:
    """Return the plan of the wanted run. If `prefix` is None, return the plan of the newest run.

    - `live_first` (set by `stop`): prefer a live run. If the plan is read from hosts, add to it the
      hosts that do not answer but may hold the run.
    - `regex_by_metric`: the metrics in this machine's job file. They are used for a plan that is
      read from hosts.
    - `plan_errors` receives {host: why the plan of this host could not be used}.
    - `warnings` receives a sentence for each run whose start time is not believed.

    Raises UsageError if the run is unknown or ambiguous. Raises the hosts' errors if the run is not
    found and hosts do not answer.
    """
    if prefix is not None and (local := store.plan(prefix, job)) is not None:
        return local
    runs, silent = find_runs(fleet, hosts, job)
    runs = newest_first(runs, store)
    if prefix is not None:
        chosen = _choose_named(runs, store, prefix)
    else:
        chosen = _choose_newest([run for run in runs if run.is_readable], job, live_first, store)
        if silent and not (chosen and chosen.live):
            chosen = _choose_newer(chosen, next(stored_plans_on(silent, store, job), None), store)
        if warnings is not None:
            warnings += [future_start_warning(run) for run in runs if starts_in_future(run, store)]
    if isinstance(chosen, Plan):
        return chosen
    if chosen is None:
        if silent:
            raise combine_errors("asking for runs", silent, len(hosts))
        problem = f"no run {prefix!r}" if prefix else f"no run of job {job}" if job else "no run"
        next_line = "`tfdeploy runs`"
        if not prefix and not runs:
            next_line = "`tfdeploy launch` starts one; `tfdeploy runs --all` lists other jobs' runs"
        raise UsageError(
            f"{problem} on these hosts",
            where=f"{format_count(len(hosts), 'host')} asked",
            next=next_line,
        )
    plan = store.plan(chosen.run, chosen.job)
    request = _plan_request(hosts, chosen, regex_by_metric)
    if plan is None and live_first:
        plan = add_missing_hosts(
            make_stop_plan(fleet, request, hosts_named(hosts, silent)),
            hosts_named(hosts, chosen.damaged),
        )
    elif plan is None:
        plan, errors = fetch_plan(fleet, request)
        if plan_errors is not None:
            plan_errors.update(errors)
    if (
        live_first
        and prefix is None
        and not chosen.live
        and silent
        and not any(host.host in silent for host in plan.hosts)
    ):
        # A host that did not answer may have a live run.
        raise combine_errors("the search for a live run", silent, len(hosts))
    return plan


def read_plan(fleet: Fleet, hosts: Hosts, store: RunStore, run: FoundRun) -> Plan | None:
    """Return the plan of a run, from this machine's store or else from hosts that hold the run.

    Returns None if the plan is unreadable. Raises DifferentPlans if two hosts hold different plans.
    """
    try:
        return store.plan(run.run, run.job) or fetch_plan(fleet, _plan_request(hosts, run))[0]
    except DifferentPlans:
        raise
    except TfdeployError:
        return None


def _choose_named(runs: list[FoundRun], store: RunStore, prefix: str) -> FoundRun | Plan | None:
    """Return the run that has the id or the unique prefix `prefix`; None if it is unknown.

    The result is a run that hosts report, or a plan from this machine's store.
    """
    runs_by_id = {each.run: each for each in runs}
    names = [name for name in {*runs_by_id, *store.run_ids()} if name.startswith(prefix)]
    if len(names) > 1 and prefix not in names:
        raise UsageError(
            f"{len(names)} runs begin with {prefix!r}: {', '.join(sorted(names)[:10])}",
            next="type more characters of the run's id",
        )
    if not names:
        return None
    name = prefix if prefix in names else names[0]
    choice = runs_by_id.get(name)
    if choice is not None and not choice.is_readable:
        host, why = next(iter(choice.damaged.items()))
        raise UsageError(
            f"the files of run {name} are damaged: {why}",
            where=host,
            next="remove the folder of this run on the host",
        )
    return choice or store.plan(name)


def _choose_newest(
    runs: list[FoundRun], job: str | None, live_first: bool, store: RunStore
) -> FoundRun | None:
    """Return the newest of `runs` (sorted, newest first). With `live_first`, prefer a live run."""
    jobs = sorted({run.job for run in runs})
    if job is None and len(jobs) > 1:
        raise UsageError(
            f"these hosts know runs of several jobs: {', '.join(jobs)}",
            next="name the run (`tfdeploy runs` lists all runs), or name the job with -j",
        )
    alive = [run for run in runs if run.live] if live_first else []
    alive = [run for run in alive if not starts_in_future(run, store)] or alive
    if len(alive) > 1:
        live_runs = ", ".join(f"{run.run} (on {fold_names(run.holders)})" for run in alive)
        raise UsageError(f"{len(alive)} runs are live: {live_runs}", next="name the run")
    return next(iter(alive or runs), None)


def stored_plans_on(hosts: Collection[str], store: RunStore, job: str | None) -> Iterator[Plan]:
    """Yield the plans in this machine's store whose runs use any of `hosts`, newest first.

    If `job` is not None, only plans of this job are returned.
    """
    return (
        plan
        for plan in store.plans()
        if job in (None, plan.job) and any(each.host in hosts for each in plan.hosts)
    )


def _choose_newer(
    reported: FoundRun | None, stored: Plan | None, store: RunStore
) -> FoundRun | Plan | None:
    """Return the newer of two runs: one that hosts report, and one in this machine's store.

    The stored run counts although no host reports it, because it may be on a host that does not
    answer.
    """
    if reported is None or stored is None:
        return reported or stored
    return (
        reported
        if newest_first((reported, FoundRun(stored.run, stored.job)), store)[0] is reported
        else stored
    )


def _plan_request(
    hosts: Hosts, run: FoundRun, regex_by_metric: Mapping[str, str] | None = None
) -> PlanRequest:
    holders = hosts_named(hosts, run.holders)
    return PlanRequest(run.run, run.job, holders, hosts, regex_by_metric or {})


def hosts_of(plan: Plan, only_hosts: Collection[str] | None = None) -> Hosts:
    """Return the run's hosts as recorded in the plan, even if the inventory has changed since.

    `only_hosts` are the names of the wanted hosts. If it is None, all hosts are returned.
    """
    return tuple(
        convert(host.ssh, Host)
        for host in plan.hosts
        if only_hosts is None or host.host in only_hosts
    )
