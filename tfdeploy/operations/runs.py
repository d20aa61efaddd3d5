"""`tfdeploy runs`: one row for each run that hosts hold, or that the store has for a host without
an answer."""

from __future__ import annotations

import time
from collections.abc import Collection

from tfdeploy.errors import TfdeployError
from tfdeploy.model.inventory import Host
from tfdeploy.model.output.rows import RunRow
from tfdeploy.model.plan import Plan
from tfdeploy.model.status.run_status import run_view
from tfdeploy.model.text.words import iso_z
from tfdeploy.operations.run_lookup.find_run import (
    CLOCK_TOLERANCE_S,
    FoundRun,
    find_runs,
    future_start_warning,
    plans_on,
    read_plan,
    starts_in_future,
)
from tfdeploy.operations.run_lookup.host_plans import DifferentPlans
from tfdeploy.store.runs import RunStore
from tfdeploy.transport.protocols import Fleet


def list_runs(
    fleet: Fleet, hosts: tuple[Host, ...], store: RunStore, job: str | None
) -> tuple[list[RunRow], dict[str, TfdeployError]]:
    """(the rows, newest first; the hosts that gave no answer)."""
    known, silent = find_runs(fleet, hosts, job)
    answered = {host.name for host in hosts} - set(silent)
    rows = []
    for one in known:
        row: RunRow
        try:
            row = _row(one, read_plan(fleet, hosts, store, one), answered)
        except DifferentPlans as error:
            row = {**_row(one, None, answered), "differ": error}
        rows.append(
            {**row, "started": None, "doubt": future_start_warning(one)}
            if starts_in_future(one, store)
            else row
        )
    listed_runs = {one.run for one in known}
    rows += [
        _remembered(plan) for plan in plans_on(silent, store, job) if plan.run not in listed_runs
    ]
    return newest_first(rows), silent


def newest_first(rows: list[RunRow]) -> list[RunRow]:
    """By `started`; rows without it last. "Z" is cut off: it would sort a time without a fraction
    behind one with it."""
    return sorted(rows, key=lambda row: (row["started"] or "").rstrip("Z"), reverse=True)


def chosen(
    rows: list[RunRow], states: Collection[str] = (), since: float | None = None
) -> list[RunRow]:
    """Those in one of `states` (none given: in any), begun at `since` or later."""
    begin = (iso_z(since) or "").rstrip("Z")
    return [
        row
        for row in rows
        if (not states or row["state"] in states) and (row["started"] or "").rstrip("Z") >= begin
    ]


def _row(known: FoundRun, plan: Plan | None, answered: set[str]) -> RunRow:
    hosts = [host.host for host in plan.hosts] if plan else sorted({*known.states, *known.damaged})
    view = (
        run_view(plan, known.states, known.tasks, unreachable={*hosts} - answered) if plan else None
    )
    now = time.time()
    began = plan.created if plan and plan.created <= now + CLOCK_TOLERANCE_S else known.started
    return {
        "run": known.run,
        "job": known.job,
        "state": view.state if view else None,
        "live": known.live,
        "started": iso_z(None if began is None else min(began, now)),
        "ended": iso_z(view.ended) if view else None,
        "tasks": len(plan.tasks) if plan else len(known.tasks),
        "hosts": hosts,
        "who": plan.operator if plan else None,
        "damaged": dict(known.damaged),
    }


def _remembered(plan: Plan) -> RunRow:
    """Return the row of a run that only this machine knows."""
    return {
        **_row(FoundRun(plan.run, plan.job), plan, set()),
        "state": None,
        "live": None,
        "ended": None,
    }
