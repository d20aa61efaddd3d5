"""List runs, for `tfdeploy runs`.

The list contains the runs that hosts report. If a host does not answer, the list also contains the
runs on that host that this machine has recorded.
"""

from __future__ import annotations

import time
from collections.abc import Collection

from tfdeploy.model.inventory import Hosts
from tfdeploy.model.output.rows import RunRow
from tfdeploy.model.plan import Plan
from tfdeploy.model.status.run_status import run_view
from tfdeploy.operations.run_lookup.find_run import (
    CLOCK_TOLERANCE_S,
    FoundRun,
    find_runs,
    future_start_warning,
    read_plan,
    starts_in_future,
    stored_plans_on,
)
from tfdeploy.operations.run_lookup.host_plans import DifferentPlans
from tfdeploy.store.runs import RunStore
from tfdeploy.text.row_values import iso_z
from tfdeploy.transport.protocols import Errors, Fleet


def list_runs(
    fleet: Fleet, hosts: Hosts, store: RunStore, job: str | None
) -> tuple[list[RunRow], Errors]:
    """Return one row for each run, newest first, and the errors of hosts without an answer."""
    known_runs, silent = find_runs(fleet, hosts, job)
    answered = {host.name for host in hosts} - set(silent)
    rows = []
    for known_run in known_runs:
        row: RunRow
        try:
            row = _make_row(known_run, read_plan(fleet, hosts, store, known_run), answered)
        except DifferentPlans as error:
            row = {**_make_row(known_run, None, answered), "differ": error}
        rows.append(
            {**row, "started": None, "doubt": future_start_warning(known_run)}
            if starts_in_future(known_run, store)
            else row
        )
    listed_runs = {known_run.run for known_run in known_runs}
    rows += [
        {
            **_make_row(FoundRun(plan.run, plan.job), plan, set()),
            "state": None,
            "live": None,
            "ended": None,
        }
        for plan in stored_plans_on(silent, store, job)
        if plan.run not in listed_runs
    ]
    return newest_first(rows), silent


def newest_first(rows: list[RunRow]) -> list[RunRow]:
    """Return the rows sorted by `started`, newest first. Rows without a start time come last.

    The times are texts. They are compared without the final "Z", because "10:00:05Z" would
    otherwise sort after "10:00:05.3Z".
    """
    return sorted(rows, key=lambda row: (row["started"] or "").rstrip("Z"), reverse=True)


def select_rows(rows: list[RunRow], states: Collection[str], since: float | None) -> list[RunRow]:
    """Return the rows of runs in one of `states` that started at `since` or later.

    If `states` is empty, runs in any state are returned.
    """
    begin = (iso_z(since) or "").rstrip("Z")
    return [
        row
        for row in rows
        if (not states or row["state"] in states) and (row["started"] or "").rstrip("Z") >= begin
    ]


def _make_row(run: FoundRun, plan: Plan | None, answered: set[str]) -> RunRow:
    hosts = [*plan.host_names] if plan else sorted({*run.states, *run.damaged})
    view = run_view(plan, run.states, run.tasks, unreachable={*hosts} - answered) if plan else None
    now = time.time()
    began = plan.created if plan and plan.created <= now + CLOCK_TOLERANCE_S else run.started
    return {
        "run": run.run,
        "job": run.job,
        "state": view.state if view else None,
        "live": run.live,
        "started": iso_z(None if began is None else min(began, now)),
        "ended": iso_z(view.ended) if view else None,
        "tasks": len(plan.tasks) if plan else len(run.tasks),
        "hosts": hosts,
        "who": plan.operator if plan else None,
        "damaged": dict(run.damaged),
    }
