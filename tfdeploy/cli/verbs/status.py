"""Run `tfdeploy status`: show the tasks of a run, as its hosts report them."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tfdeploy.cli.arguments.status import Flags
from tfdeploy.cli.chosen_run import choose_run
from tfdeploy.cli.fleet import open_fleet
from tfdeploy.cli.messages import print_unselected_hosts, show_errors, unselected_host_names
from tfdeploy.cli.output import print_message
from tfdeploy.errors import TfdeployError, worst_exit_code
from tfdeploy.model.status.run_status import run_view_json
from tfdeploy.operations.status import lines_of_first_death, status
from tfdeploy.operations.tasklogs.fetched_logs import FetchedLogs
from tfdeploy.operations.watch.failure_advice import failure_advice
from tfdeploy.operations.watch.relay import describe_uninformed, relay_run_end
from tfdeploy.operations.watch.resume import resume_or_end_on_host
from tfdeploy.ui.reports import show_status
from tfdeploy.ui.sanitise import clean
from tfdeploy.ui.terminal import can_draw_dashboard

if TYPE_CHECKING:
    from tfdeploy.model.plan import Plan
    from tfdeploy.operations.status import Status
    from tfdeploy.transport.protocols import Fleet


def run(flags: Flags) -> int:
    with open_fleet(flags) as fleet:
        plan, only_hosts, plan_code = choose_run(flags, fleet)
        if flags.watch and not flags.json and can_draw_dashboard():
            from tfdeploy.cli.dashboard import show_dashboard

            show_dashboard(flags, fleet, plan, last_lines=200, only_hosts=only_hosts)
            print_unselected_hosts(flags, unselected_host_names(plan, only_hosts))
            return 0
        while True:
            current = status(fleet, plan, only_hosts)
            _show_status(flags, fleet, plan, current)
            resumed = flags.watch and _resume_or_end_run_on(fleet, plan, current.processless_hosts)
            if flags.watch and current.uninformed is not None:
                print_message(
                    describe_uninformed(*current.uninformed)
                    + "; this machine now reports the end of the run"
                )
                relay_run_end(fleet, plan, *current.uninformed)
            if not flags.watch or (current.view.is_final and not resumed):
                break
            time.sleep(2)
        for problem in () if flags.watch else _list_problems_watch_fixes(current):
            print_message(f"{problem}:")
            print_message(
                f"  next: {flags.add_file_flags(f'`tfdeploy status {plan.run} --watch`')}"
            )
        show_errors(flags, current.errors)
        print_unselected_hosts(flags, current.view.unasked)
        return worst_exit_code(
            [plan_code, exit_code_if_unreachable(plan, only_hosts, current.errors)]
        )


def _list_problems_watch_fixes(current: Status) -> Iterator[str]:
    """Yield a message for each problem that `tfdeploy status --watch` would fix."""
    if current.view.state in ("running", "starting", "lost"):
        for host in current.processless_hosts:
            yield f"[{host}] after a reboot or kill, no process of the run is left; to resume it"
    if current.uninformed is not None:
        yield describe_uninformed(*current.uninformed) + "; to report the end of the run"


def exit_code_if_unreachable(
    plan: Plan, only_hosts: Collection[str] | None, errors: dict[str, TfdeployError]
) -> int:
    """Return the exit code 4 if the status is unusable because hosts failed, else 0.

    The status is unusable if all hosts failed. It is also unusable if one host failed and the plan
    lacks the address of a host. Otherwise `status` succeeds although some hosts do not answer.
    """
    asked_hosts = [host for host in plan.hosts if only_hosts is None or host.host in only_hosts]
    lacking = any(host.ssh and not host.ssh.get("address") for host in asked_hosts)
    return 4 if errors and (lacking or len(errors) == len(asked_hosts)) else 0


def _resume_or_end_run_on(fleet: Fleet, plan: Plan, hosts: tuple[str, ...]) -> bool:
    """Resume the run on `hosts`, on which no process of the run is left.

    If the run was stopped or has ended elsewhere, the run is ended on `hosts` too. Returns True if
    the run continues on at least one of them, or if resuming on one failed and is worth a retry.
    """
    can_resume = False
    for host in hosts:
        try:
            can_resume |= resume_or_end_on_host(fleet, plan, host)
        except TfdeployError as error:
            print_message(f"[{host}] the run cannot be resumed on this host: {clean(error.what)}")
            can_resume = True  # the next round of --watch tries again
    return can_resume


def _show_status(flags: Flags, fleet: Fleet, plan: Plan, current: Status) -> None:
    if flags.json:
        print(json.dumps(run_view_json(current.view)), flush=True)
        return
    fetched = FetchedLogs(Path("fetched") / plan.run / "logs")
    last_lines = lines_of_first_death(fleet, plan, current, fetched)
    as_of = "as of the last fetch" if fetched.replaced_hosts else ""
    view = current.view
    advice = failure_advice(plan, view.first_death, view.cause or "")
    show_status(flags.out, view, time.time(), flags.add_file_flags, last_lines, as_of, advice)
