"""Run `tfdeploy stop`: end a run on all its hosts, and print the processes that have survived."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdeploy.cli.arguments.stop import Flags
from tfdeploy.cli.chosen_run import choose_run
from tfdeploy.cli.fleet import lock_holder, open_fleet
from tfdeploy.cli.output import print_json, print_message
from tfdeploy.errors import HostUnreachable, TfdeployError, worst_exit_code
from tfdeploy.model.answers.runs import RunEnded
from tfdeploy.model.output.rows import Survivor
from tfdeploy.operations.lock import refuse_during_launch
from tfdeploy.operations.run_lookup.find_run import hosts_of
from tfdeploy.operations.stop import run_end_before_stop, stop
from tfdeploy.text.names import fold_names
from tfdeploy.text.row_values import copy_fields
from tfdeploy.ui.headway import HostCountLine
from tfdeploy.ui.reports import show_stop
from tfdeploy.ui.sanitise import clean

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfdeploy.model.output.printed import StopAnswer, StoppedRow
    from tfdeploy.model.output.rows import StopRow
    from tfdeploy.model.plan import Plan
    from tfdeploy.operations.stop import Outcome

    Results = Mapping[str, Outcome]


def run(flags: Flags) -> int:
    with open_fleet(flags) as fleet:
        plan, _, _ = choose_run(flags, fleet, live_first=True)
        grace_s = choose_grace_s(flags, plan)
        headway = HostCountLine(flags.err, len(plan.hosts))

        def report_done(host: str, result: Outcome) -> None:
            if not (flags.quiet or isinstance(result, TfdeployError)):
                headway.mark_done(host)

        def report_retry(errors: Mapping[str, TfdeployError]) -> None:
            if not flags.quiet:
                headway.report_retry({host: error.what for host, error in errors.items()})

        results = stop(fleet, plan, grace_s=grace_s, on_done=report_done, on_retry=report_retry)
        headway.erase()
        state = run_end_before_stop(fleet, plan, results)
        if state is not None and flags.run_prefix is None:
            refuse_during_launch(fleet, hosts_of(plan)[0], plan.job, lock_holder())
        rows = make_rows(results)
        if flags.json:
            print_json(stop_as_json(plan.run, rows))
        elif not flags.quiet:
            _show_result(flags, plan.run, rows, results, state)
        return worst_exit_code([*results.values(), *(5 for row in rows if row["survivors"])])


def choose_grace_s(flags: Flags, plan: Plan) -> float:
    """Return the seconds between TERM and KILL."""
    return 0.0 if flags.now else plan.stop_grace_s if flags.grace is None else flags.grace


def stop_as_json(run: str, rows: list[StopRow]) -> StopAnswer:
    hosts: list[StoppedRow] = [
        {
            "host": row["host"],
            "ok": row["ok"],
            "survivors": [each["pid"] for each in row["survivors"]],
            "error": row["error"],
        }
        for row in rows
    ]
    return {"run": run, "ok": all(row["ok"] for row in rows), "hosts": hosts}


def make_rows(results: Results) -> list[StopRow]:
    rows: list[StopRow] = []
    answers = [each for each in results.values() if isinstance(each, RunEnded)]
    # The first host that stops tells the others, some of which then end before they are asked.
    had_ended = all(each.had_ended for each in answers)
    for host, result in results.items():
        error = result.what if isinstance(result, TfdeployError) else None
        survivors = []
        if isinstance(result, RunEnded):
            survivors = [copy_fields(Survivor, each) for each in result.survivors]
        ok = error is None and not survivors
        rows.append(
            {"host": host, "ok": ok, "survivors": survivors, "error": error, "had_ended": had_ended}
        )
    return rows


def _show_result(
    flags: Flags, run: str, rows: list[StopRow], results: Results, earlier_end: str | None
) -> None:
    """Print the result of the stop.

    `earlier_end`: the state in which the run had ended before the stop, or None if it had not
    ended.
    """
    show_stop(flags.err, rows)
    if all(row["ok"] for row in rows):
        had_ended = f"; the run ended earlier: {clean(earlier_end)}" if earlier_end else ""
        print_message(f"no process of run {run} is alive{had_ended}")
        return
    unreachable = [host for host, result in results.items() if isinstance(result, HostUnreachable)]
    messengers = [host for host, result in results.items() if getattr(result, "messenger", False)]
    if unreachable and messengers:
        print_message(
            f"if {fold_names(unreachable)} can be reached again within a day, "
            f"{fold_names(messengers)} will stop the run there"
        )
    print_message(
        f"to finish the stop, type {flags.add_file_flags(f'`tfdeploy stop {run}`')} again"
    )
