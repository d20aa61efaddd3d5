"""`tfdeploy runs`: runs so far, as the hosts know them, also those that another control machine started."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from tfdeploy.cli.options import common


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser("runs", help="runs so far", description="Runs so far, newest first, as the hosts know them.")
    parser.add_argument("--all", action="store_true", help="of every job, not only of this folder's")
    common(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from tfdeploy.cli import setting
    from tfdeploy.errors import worst
    from tfdeploy.operations.runs import list_runs
    from tfdeploy.ui.reports import show_runs
    from tfdeploy.ui.sanitise import clean
    from tfdeploy.ui.terminal import terminal_of

    with setting.open_fleet(args) as fleet:
        hosts, job = setting.where_to_look(args)
        rows, silent = list_runs(fleet, hosts, setting.store(), None if args.all else job)
    if args.json:
        print(json.dumps({"runs": rows, "unreachable": sorted(silent)}))
    else:
        show_runs(terminal_of(sys.stdout, args.color), rows)
        if not rows:
            print("no runs yet", file=sys.stderr)
    for host, error in silent.items():
        print(f"[{host}] {clean(error.what)}", file=sys.stderr)
    return worst(error.exit_code for error in silent.values())
