"""`tfdeploy status`: the tasks of a run, as its hosts report them."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfdeploy.cli.flags import OfRun, finish_parser


@dataclass(frozen=True, kw_only=True)
class Flags(OfRun):
    watch: bool = False


if TYPE_CHECKING:
    from tfdeploy.errors import TfdeployError
    from tfdeploy.model.plan import Plan
    from tfdeploy.operations.status import Status
    from tfdeploy.transport.protocols import Fleet


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser("status", help="the tasks of a run", description="The tasks of a run, as its hosts say.")
    parser.add_argument("wanted", nargs="?", metavar="RUN", help="id or unique prefix (default: the newest of this job)")
    parser.add_argument(
        "--watch", action="store_true", help="the dashboard on a terminal, else again and again until the run ends"
    )
    finish_parser(parser, Flags, run)


def run(flags: Flags) -> int:
    from tfdeploy.cli import context
    from tfdeploy.cli.dashboard import dashboard
    from tfdeploy.cli.views import on_terminal
    from tfdeploy.errors import worst
    from tfdeploy.operations.status import status
    from tfdeploy.operations.watch.relay import in_words, relay_end

    with context.open_fleet(flags) as fleet:
        plan, only, plan_code = context.chosen_run(flags, fleet)
        if flags.watch and not flags.json and on_terminal():
            dashboard(flags, fleet, plan, last=200, only=only)
            context.show_unasked(flags, () if only is None else (host.host for host in plan.hosts if host.host not in only))
            return 0
        while True:
            found = status(fleet, plan, only)
            _show(flags, fleet, plan, found)
            resumed = flags.watch and _resume_on(fleet, plan, found.abandoned)
            if flags.watch and found.unheard is not None:
                print(in_words(*found.unheard) + ": told from here", file=sys.stderr)
                relay_end(fleet, plan, *found.unheard)
            if not flags.watch or (found.view.final and not resumed):
                break
            time.sleep(2)
        if not flags.watch and found.view.state in ("running", "starting", "lost"):
            for host in found.abandoned:
                print(f"[{host}] all of the run is gone here (rebooted, or killed); this makes it go on:", file=sys.stderr)
                print(f"  next: {flags.typed(f'tfdeploy status {plan.run} --watch')}", file=sys.stderr)
        if found.unheard is not None and not flags.watch:
            print(in_words(*found.unheard) + "; this tells them from here:", file=sys.stderr)
            print(f"  next: {flags.typed(f'tfdeploy status {plan.run} --watch')}", file=sys.stderr)
        context.show_errors(flags, found.errors)
        context.show_unasked(flags, found.view.unasked)
        return worst([plan_code, _unreachable_code(plan, only, found.errors)])


def _unreachable_code(plan: Plan, only: Collection[str] | None, errors: dict[str, TfdeployError]) -> int:
    """4 where no host answers, or the inventory lacks one of those that do not; else 0: `status` may miss some hosts."""
    asked = [host for host in plan.hosts if only is None or host.host in only]
    lacking = [host.host for host in asked if host.ssh and not host.ssh.get("address")]
    return 4 if errors and (lacking or len(errors) == len(asked)) else 0


def _resume_on(fleet: Any, plan: Any, left: tuple[str, ...]) -> bool:
    """Makes the run go on, on hosts where all of it is gone. Whether it may go on at one of them."""
    from tfdeploy.errors import TfdeployError
    from tfdeploy.operations.watch.resume import resume
    from tfdeploy.ui.sanitise import clean

    found = False
    for host in left:
        try:
            found = resume(fleet, plan, host) or found
        except TfdeployError as error:
            print(f"[{host}] the run cannot go on here: {clean(error.what)}", file=sys.stderr)
            found = True  # it is tried again at the next look
    return found


def _show(flags: Flags, fleet: Fleet, plan: Plan, found: Status) -> None:
    from tfdeploy.model.status import run_view_json
    from tfdeploy.operations.status import lines_of_first_death
    from tfdeploy.operations.tasklogs.fetched_logs import FetchedLogs
    from tfdeploy.ui.reports import show_status
    from tfdeploy.ui.terminal import terminal_of

    if flags.json:
        print(json.dumps(run_view_json(found.view)), flush=True)
        return
    fetched = FetchedLogs(Path("fetched") / plan.run / "logs")
    last_lines = lines_of_first_death(fleet, plan, found, fetched)
    as_of = "as of the last fetch" if fetched.used else ""
    show_status(terminal_of(sys.stdout, flags.color), found.view, time.time(), flags.typed, last_lines, as_of)
