"""`tfdeploy status`: the tasks of a run, as its hosts say."""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import TYPE_CHECKING, Any

from tfdeploy.cli.options import common

if TYPE_CHECKING:
    from tfdeploy.errors import TfdeployError
    from tfdeploy.model.plan import Plan


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser("status", help="the tasks of a run", description="The tasks of a run, as its hosts say.")
    parser.add_argument("wanted", nargs="?", metavar="RUN", help="id or unique prefix (default: the newest of this job)")
    parser.add_argument(
        "--watch", action="store_true", help="the dashboard on a terminal, else again and again until the run ends"
    )
    common(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from tfdeploy.cli import setting
    from tfdeploy.cli.views import dashboard, on_terminal
    from tfdeploy.errors import worst
    from tfdeploy.operations.status import status
    from tfdeploy.ui.sanitise import clean

    with setting.open_fleet(args) as fleet:
        plan, odd = setting.run_meant(args, fleet)
        if args.watch and not args.json and on_terminal():
            dashboard(fleet, plan, last=200)
            return 0
        while True:
            found = status(fleet, plan)
            _show(args, found.view)
            goes_on = args.watch and _goes_on(fleet, plan, found.left)
            if not args.watch or (found.view.final and not goes_on):
                break
            time.sleep(2)
        if not args.watch and found.view.state in ("running", "starting", "lost"):
            for host in found.left:
                print(f"[{host}] all of the run is gone here (rebooted, or killed)", file=sys.stderr)
                print(f"  next: tfdeploy status {plan.run} --watch: makes it go on there", file=sys.stderr)
        for host, error in found.errors.items():
            print(f"[{host}] {clean(error.what)}", file=sys.stderr)
        return worst([odd, _silence(plan, found.errors)])


def _silence(plan: Plan, errors: dict[str, TfdeployError]) -> int:
    """4 where no host answers, or the inventory lacks one of them; a host that is away is no failure of a look."""
    lacking = [host.host for host in plan.hosts if host.ssh and not host.ssh.get("address")]
    return 4 if errors and (lacking or len(errors) == len(plan.hosts)) else 0


def _goes_on(fleet: Any, plan: Any, left: tuple[str, ...]) -> bool:
    """Whether a host that lost all of the run minds it again."""
    from tfdeploy.errors import TfdeployError
    from tfdeploy.operations.resume import resume
    from tfdeploy.ui.sanitise import clean

    found = False
    for host in left:
        try:
            found = resume(fleet, plan, host) or found
        except TfdeployError as error:
            print(f"[{host}] the run cannot go on here: {clean(error.what)}", file=sys.stderr)
            found = True  # perhaps at the next look
    return found


def _show(args: argparse.Namespace, view: Any) -> None:
    from tfdeploy.model.status import run_view_json
    from tfdeploy.ui.reports import show_status
    from tfdeploy.ui.terminal import terminal_of

    if args.json:
        print(json.dumps(run_view_json(view)), flush=True)
    else:
        show_status(terminal_of(sys.stdout, args.color), view, time.time())
