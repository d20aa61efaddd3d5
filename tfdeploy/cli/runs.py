"""`tfdeploy runs`: runs so far, as the hosts report them, also those that another control machine started."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import Any

from tfdeploy.cli.flags import CommonFlags, finish_parser


@dataclass(frozen=True, kw_only=True)
class Flags(CommonFlags):
    all: bool = False


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser("runs", help="runs so far", description="Runs so far, newest first, as the hosts know them.")
    parser.add_argument("--all", action="store_true", help="of every job, not only of this folder's")
    finish_parser(parser, Flags, run)


def run(flags: Flags) -> int:
    from tfdeploy.cli import context
    from tfdeploy.errors import worst
    from tfdeploy.operations.runs import list_runs
    from tfdeploy.ui.reports import show_runs
    from tfdeploy.ui.sanitise import clean
    from tfdeploy.ui.terminal import terminal_of

    with context.open_fleet(flags) as fleet:
        scope = context.lookup_scope(flags)
        rows, silent = list_runs(fleet, scope.hosts, context.store(), None if flags.all or scope.job is None else scope.job.name)
    damaged = {(row["run"], host): why for row in rows for host, why in row.pop("damaged", {}).items()}
    differ = {row["run"]: row.pop("differ") for row in rows if "differ" in row}
    if flags.json:
        print(json.dumps({"runs": rows, "unreachable": sorted(silent)}))
    else:
        show_runs(terminal_of(sys.stdout, flags.color), rows)
        if not rows:
            print("no runs on the hosts that were asked" if scope.unasked else "no runs yet", file=sys.stderr)
    for (run, host), why in damaged.items():
        print(f"[{host}] the files of {run} are damaged: {clean(why)}", file=sys.stderr)
    for error in differ.values():
        print(f"{error.what}\n  next: {flags.typed(error.next or '')}", file=sys.stderr)
    context.show_errors(flags, silent)
    context.show_unasked(flags, scope.unasked)
    return worst(error.exit_code for error in silent.values())
