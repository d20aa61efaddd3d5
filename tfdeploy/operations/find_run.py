"""Which run is meant: by id or unique prefix, or the newest of this job. Asked of the hosts; the local store only helps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tfdeploy.agent import wire
from tfdeploy.errors import TfdeployError, UsageError
from tfdeploy.model.answers.runs import RUNS, ListedRun
from tfdeploy.model.inventory import Host
from tfdeploy.model.plan import Plan
from tfdeploy.model.typed import convert
from tfdeploy.operations.host_plans import DifferentPlans, Sought, also_on, fetch_plan, plan_to_stop
from tfdeploy.operations.outcomes import split, together
from tfdeploy.store.runs import RunStore
from tfdeploy.transport.protocols import Fleet, Session


@dataclass
class KnownRun:
    """One run as the hosts of the inventory know it."""

    run: str
    job: str
    live: bool = False
    committed: bool = False
    started: float | None = None
    holders: list[str] = field(default_factory=list)  # as the inventory calls them
    states: dict[str, wire.HostRunState | None] = field(default_factory=dict)
    tasks: dict[str, wire.TaskStatus] = field(default_factory=dict)
    damaged: dict[str, str] = field(default_factory=dict)  # host -> what is wrong with its files of the run

    @property
    def readable(self) -> bool:
        return not self.damaged or bool(self.holders)


def known_runs(fleet: Fleet, hosts: tuple[Host, ...], job: str | None) -> tuple[list[KnownRun], dict[str, TfdeployError]]:
    """(all runs that the hosts know, newest first; the hosts that gave no answer)."""

    def ask(session: Session) -> list[ListedRun]:
        return session.agent().call(RUNS, {"job": job} if job else {})

    answers, silent = split(fleet.each(hosts, ask))
    found: dict[tuple[str, str], KnownRun] = {}
    for host, rows in answers.items():
        for row in rows:
            known = found.setdefault((row.job, row.run), KnownRun(row.run, row.job))
            if row.damaged is not None:
                known.damaged[host] = row.damaged
                continue
            known.live = known.live or row.live
            known.committed = known.committed or row.committed
            known.holders.append(host)
            if (said := row.host_state.host) == host or said not in known.states:  # nobody speaks for another one
                known.states[said] = row.host_state
            for status in row.tasks:
                if status.host == host or status.task not in known.tasks:
                    known.tasks[status.task] = status
                if status.started is not None:
                    known.started = min(status.started, known.started or status.started)
    return sorted(found.values(), key=_age, reverse=True), silent


def _age(known: KnownRun) -> tuple[float, str]:
    stamps = [state.started for state in known.states.values() if state and state.started]
    return (known.started or min(stamps, default=0.0), known.run)


def find_run(
    fleet: Fleet,
    hosts: tuple[Host, ...],
    store: RunStore,
    *,
    wanted: str | None,
    job: str | None,
    live_first: bool = False,
    metrics: Mapping[str, str] | None = None,
    refused: dict[str, TfdeployError] | None = None,
) -> Plan:
    """The plan of the run that is meant. Raises UsageError (unknown, or several fit) or the hosts' errors.

    `live_first`: to stop it. Where the plan comes from hosts: `metrics` are this machine's, `refused` says which host's own
    plan of the run could not be used, and to stop it, hosts that gave no answer are among those of the plan.
    """
    if wanted is not None and (local := store.plan(wanted, job)) is not None:
        return local
    runs, silent = known_runs(fleet, hosts, job)
    if wanted is not None:
        plan = _choose_named(runs, store, wanted)
    else:
        plan = _choose_newest([known for known in runs if known.readable], job, live_first)
        if silent and not (plan and plan.live):
            plan = _newer(_remembered(store, job, silent), plan)
    if isinstance(plan, Plan):
        return plan
    if plan is None:
        if silent:
            raise together("asking for runs", silent, len(hosts))
        what = f"no run {wanted!r}" if wanted else "no run of this job" if job else "no run"
        next_line = "tfdeploy runs" if wanted or runs else "`tfdeploy launch` starts one"
        raise UsageError(f"{what} on these hosts", where=f"{len(hosts)} hosts asked", next=next_line)
    own = store.plan(plan.run, plan.job)
    unheard = tuple(host for host in hosts if host.name in silent)
    found = own or _from_hosts(fleet, _sought(hosts, plan, metrics), unheard if live_first else None, refused)
    if live_first and wanted is None and not plan.live and silent and not any(host.host in silent for host in found.hosts):
        raise together("asking for a live run", silent, len(hosts))  # an ended run is not what is to be stopped
    if live_first and own is None:
        return also_on(found, (host for host in hosts if host.name in plan.damaged))
    return found


def read_plan(fleet: Fleet, hosts: tuple[Host, ...], store: RunStore, known: KnownRun) -> Plan | None:
    """The plan of a known run: remembered, else from its hosts; None where none can be read. Raises DifferentPlans."""
    try:
        return store.plan(known.run, known.job) or fetch_plan(fleet, _sought(hosts, known))[0]
    except DifferentPlans:
        raise
    except TfdeployError:
        return None


def _choose_named(runs: list[KnownRun], store: RunStore, wanted: str) -> KnownRun | Plan | None:
    known = {known.run: known for known in runs}
    names = [name for name in {*known, *store.runs()} if name.startswith(wanted)]
    if wanted in names:
        names = [wanted]
    if len(names) > 1:
        raise UsageError(f"{len(names)} runs begin with {wanted!r}: {', '.join(sorted(names)[:10])}", next="give more of the id")
    if not names:
        return None
    found = known.get(names[0])
    if found is not None and not found.readable:
        host, why = next(iter(found.damaged.items()))
        raise UsageError(f"the files of run {found.run} are damaged: {why}", where=host, next="remove that folder there")
    return found or store.plan(names[0])


def _choose_newest(runs: list[KnownRun], job: str | None, live_first: bool) -> KnownRun | None:
    if job is None and len({known.job for known in runs}) > 1:
        jobs = ", ".join(sorted({known.job for known in runs}))
        raise UsageError(
            f"these hosts know runs of several jobs: {jobs}", next="name the run (`tfdeploy runs` lists them), or -j"
        )
    alive = [known for known in runs if known.live]
    if live_first and len(alive) > 1:
        raise UsageError(f"{len(alive)} runs are live: {', '.join(k.run for k in alive)}", next="name the run")
    if live_first and alive:
        return alive[0]
    return runs[0] if runs else None


def _remembered(store: RunStore, job: str | None, silent: dict[str, TfdeployError]) -> Plan | None:
    """The newest remembered run of the job that lives on a host which gave no answer just now."""
    for plan in store.plans():
        if job in (None, plan.job) and any(host.host in silent for host in plan.hosts):
            return plan
    return None


def _newer(remembered: Plan | None, known: KnownRun | None) -> KnownRun | Plan | None:
    """A host that is silent may have the newer one: then no older one is meant."""
    if remembered is None or (known is not None and _age(known)[0] >= remembered.created):
        return known
    return remembered


def _sought(hosts: tuple[Host, ...], known: KnownRun, metrics: Mapping[str, str] | None = None) -> Sought:
    holders = tuple(host for host in hosts if host.name in known.holders)
    return Sought(known.run, known.job, holders, hosts, metrics or {})


def _from_hosts(fleet: Fleet, sought: Sought, silent: tuple[Host, ...] | None, refused: dict[str, TfdeployError] | None) -> Plan:
    """`silent`: of a run that is to be stopped."""
    if silent is not None:
        return plan_to_stop(fleet, sought, silent)
    plan, errors = fetch_plan(fleet, sought)
    if refused is not None:
        refused.update(errors)
    return plan


def hosts_of(plan: Plan) -> tuple[Host, ...]:
    """The run's own recorded hosts: they count, even when the inventory has changed since."""
    return tuple(convert(host.ssh, Host) for host in plan.hosts)
