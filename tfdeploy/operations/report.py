"""Collect everything about one run, for `tfdeploy report`. Changes nothing."""

from __future__ import annotations

import time

from tfdeploy.model.plan import Plan
from tfdeploy.model.report.run_report import LastLine, RunReport
from tfdeploy.operations.samples import read_samples
from tfdeploy.operations.status import Status, status
from tfdeploy.operations.tasklogs.stored_lines import stored_lines
from tfdeploy.operations.tasklogs.task_log import PIECE_S, LogQuery
from tfdeploy.store.runs import RunStore
from tfdeploy.transport.protocols import Fleet

LAST_LINES = 60  # the report shows this many log lines of the task that died first


def report(
    fleet: Fleet, plan: Plan, store: RunStore, only_hosts: frozenset[str] | None = None
) -> tuple[RunReport, Status]:
    """Return the report of a run, and the status of the run from which the report was made.

    The status has the errors of hosts that do not answer. `only_hosts`: ask only these hosts.
    """
    run_status = status(fleet, plan, only_hosts)
    sampled = read_samples(fleet, plan, only_hosts)
    run_report = RunReport(
        plan=plan,
        view=run_status.view,
        made=time.time(),
        **vars(sampled),
        events=tuple(store.events(plan.run)),
        last_lines=_last_lines_of_death(fleet, plan, run_status),
    )
    return run_report, run_status


def _last_lines_of_death(fleet: Fleet, plan: Plan, run_status: Status) -> tuple[LastLine, ...]:
    death = run_status.view.first_death
    if death not in {task.task for task in run_status.view.tasks}:
        return ()
    lines = stored_lines(
        fleet, plan, LogQuery((death,), last=LAST_LINES, within_s=PIECE_S), dict(run_status.errors)
    )
    return tuple(LastLine(line.time, line.line.decode("utf-8", "replace")) for line in lines)
