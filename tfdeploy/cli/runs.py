"""`tfdeploy runs`: runs so far, as the hosts report them, also those that another control machine started."""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tfdeploy.agent.wire import RUN_STATES
from tfdeploy.cli.flags import CommonFlags, finish_parser
from tfdeploy.cli.options import moment

if TYPE_CHECKING:
    from tfdeploy.model.printed import RunsAnswer
    from tfdeploy.model.rows import KnownRunRow, RunRow


@dataclass(frozen=True, kw_only=True)
class Flags(CommonFlags):
    all: bool = False
    state: list[str] | None = None
    since: float | None = None  # UTC seconds


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser("runs", help="runs so far", description="Runs so far, newest first, as the hosts know them.")
    parser.add_argument("--all", action="store_true", help="of every job, not only of this folder's")
    what = f"only those in this state, or in one of several: {','.join(RUN_STATES)}"
    parser.add_argument("--state", action="extend", type=_states, metavar="STATE,...", help=what)
    what = "only those begun since then: 2d, 1h30m (so long ago), 2026-11-22T10:00:00Z or 2026-11-22"
    parser.add_argument("--since", type=moment, metavar="WHEN", help=what)
    finish_parser(parser, Flags, run)


def run(flags: Flags) -> int:
    from tfdeploy.cli import context
    from tfdeploy.errors import worst
    from tfdeploy.operations.runs import chosen, list_runs
    from tfdeploy.ui.reports import show_runs
    from tfdeploy.ui.sanitise import clean
    from tfdeploy.ui.terminal import terminal_of

    with context.open_fleet(flags) as fleet:
        scope = context.lookup_scope(flags)
        rows, silent = list_runs(fleet, scope.hosts, context.store(), None if flags.all or scope.job is None else scope.job.name)
    known, rows = len(rows), chosen(rows, flags.state or (), flags.since)
    damaged = {(row["run"], host): why for row in rows for host, why in row.get("damaged", {}).items()}
    differ = {row["run"]: row["differ"] for row in rows if "differ" in row}
    if flags.json:
        answer: RunsAnswer = {"runs": [_row(row) for row in rows], "unreachable": sorted(silent)}
        print(json.dumps(answer))
    else:
        show_runs(terminal_of(sys.stdout, flags.color), rows, time.time())
        if not rows and known:
            print(f"none of {known} runs is so (--state, --since)", file=sys.stderr)
        elif not rows:
            print("no runs on the hosts that were asked" if scope.unasked else "no runs yet", file=sys.stderr)
    for (run, host), why in damaged.items():
        print(f"[{host}] the files of {run} are damaged: {clean(why)}", file=sys.stderr)
    for row in rows:
        if "doubt" in row:
            print(f"warning: {row['doubt']}", file=sys.stderr)
    for error in differ.values():
        print(f"{error.what}\n  next: {flags.typed(error.next or '')}", file=sys.stderr)
    context.show_errors(flags, silent)
    context.show_unasked(flags, scope.unasked)
    return worst(error.exit_code for error in silent.values())


def _row(row: RunRow) -> KnownRunRow:
    return {
        "run": row["run"],
        "job": row["job"],
        "state": row["state"],
        "live": row["live"],
        "started": row["started"],
        "ended": row["ended"],
        "tasks": row["tasks"],
        "hosts": row["hosts"],
        "who": row["who"],
    }


def _states(text: str) -> list[str]:
    """`failed,lost`: states of runs. Raises ArgumentTypeError."""
    found = text.split(",")
    for name in found:
        if name not in RUN_STATES:
            raise argparse.ArgumentTypeError(f"{name!r} is no state of a run: {', '.join(RUN_STATES)}")
    return found
