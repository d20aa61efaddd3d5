"""Which run is meant: by id or unique prefix, or the newest of this job. Asked of the hosts; the local store only helps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from tfdeploy.agent import wire
from tfdeploy.errors import TfdeployError, UsageError
from tfdeploy.model.inventory import Host
from tfdeploy.model.plan import Plan, plan_from_json
from tfdeploy.model.typed import convert
from tfdeploy.operations.outcomes import split, together
from tfdeploy.store.runs import RunStore
from tfdeploy.transport.seam import Fleet, Session


@dataclass
class KnownRun:
    """One run as the hosts of the inventory know it."""

    run: str
    job: str
    live: bool = False
    started: float | None = None
    states: dict[str, wire.HostRunState | None] = field(default_factory=dict)
    tasks: dict[str, wire.TaskStatus] = field(default_factory=dict)


def known_runs(fleet: Fleet, hosts: tuple[Host, ...], job: str | None) -> tuple[list[KnownRun], dict[str, TfdeployError]]:
    """(all runs that the hosts know, newest first; the hosts that gave no answer)."""

    def ask(session: Session) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = session.agent().call("runs", {"job": job} if job else {})
        return rows

    answers, silent = split(fleet.each(hosts, ask))
    found: dict[tuple[str, str], KnownRun] = {}
    for host, rows in answers.items():
        for row in rows:
            known = found.setdefault((row["job"], row["run"]), KnownRun(row["run"], row["job"]))
            state = wire.from_wire(wire.HostRunState, row["host_state"]) if row.get("host_state") else None
            known.live = known.live or bool(row.get("live"))
            known.states[state.host if state else host] = state
            for fields in row.get("tasks", ()):
                status = wire.from_wire(wire.TaskStatus, fields)
                known.tasks[status.task] = status
                if status.started is not None:
                    known.started = min(status.started, known.started or status.started)
    return sorted(found.values(), key=_age, reverse=True), silent


def _age(known: KnownRun) -> tuple[float, str]:
    stamps = [state.started for state in known.states.values() if state and state.started]
    return (known.started or min(stamps, default=0.0), known.run)


def find_run(
    fleet: Fleet, hosts: tuple[Host, ...], store: RunStore, *, wanted: str | None, job: str | None, live_first: bool = False
) -> Plan:
    """The plan of the run that is meant. Raises UsageError (unknown, or several fit) or the hosts' errors."""
    if wanted is not None and (local := store.plan(wanted, job)) is not None:
        return local
    runs, silent = known_runs(fleet, hosts, job)
    if wanted is not None:
        plan = _choose_named(runs, store, wanted)
    else:
        plan = _choose_newest(runs, job, live_first)
        if silent and not (plan and plan.live):
            plan = _newer(_remembered(store, job, silent), plan)
    if isinstance(plan, Plan):
        return plan
    if plan is None:
        if silent:
            raise together("asking for runs", silent, len(hosts))
        what = f"no run {wanted!r}" if wanted else "no run of this job" if job else "no run"
        raise UsageError(f"{what} on these hosts", where=f"{len(hosts)} hosts asked", next="tfdeploy runs")
    found = store.plan(plan.run, plan.job) or _fetch_plan(fleet, hosts, plan)
    if live_first and wanted is None and not plan.live and silent and not any(host.host in silent for host in found.hosts):
        raise together("asking for a live run", silent, len(hosts))  # an ended run is not what is to be stopped
    return found


def read_plan(fleet: Fleet, hosts: tuple[Host, ...], store: RunStore, known: KnownRun) -> Plan | None:
    """The plan of a known run: remembered, else from one of its hosts; None where none can be read."""
    try:
        return store.plan(known.run, known.job) or _fetch_plan(fleet, hosts, known)
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
    return known.get(names[0]) or store.plan(names[0])


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


def _fetch_plan(fleet: Fleet, hosts: tuple[Host, ...], known: KnownRun) -> Plan:
    holders = tuple(host for host in hosts if host.name in known.states) or hosts

    def ask(session: Session) -> Plan:
        fields = session.agent().call("run.plan", {"run": known.run, "job": known.job})
        try:
            return plan_from_json(fields)
        except msgspec.ValidationError as error:
            raise UsageError(f"the plan of {known.run} cannot be read: {error}", where=session.host.name) from error

    plans, errors = split(fleet.each(holders, ask))
    for plan in plans.values():
        return plan
    raise together(f"reading the plan of {known.run}", errors, len(holders))


def hosts_of(plan: Plan) -> tuple[Host, ...]:
    """The run's own recorded hosts: they count, even when the inventory has changed since."""
    return tuple(convert(host.ssh, Host) for host in plan.hosts)
