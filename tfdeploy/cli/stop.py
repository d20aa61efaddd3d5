"""`tfdeploy stop`: ends a run on all its hosts, and says what is left."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from tfdeploy.cli.options import common, duration


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser("stop", help="end a run", description="TERM to every process of the run, grace, KILL, verify.")
    parser.add_argument("wanted", nargs="?", metavar="RUN", help="id or unique prefix (default: this job's live run)")
    parser.add_argument("--grace", type=duration, metavar="20s", help="between TERM and KILL (default: the run's stop.grace)")
    parser.add_argument("--now", action="store_true", help="KILL at once")
    common(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from tfdeploy.cli import setting
    from tfdeploy.errors import worst
    from tfdeploy.operations.outcomes import split
    from tfdeploy.operations.stop import Stopped, stop
    from tfdeploy.ui.headway import Headway
    from tfdeploy.ui.terminal import terminal_of

    with setting.open_fleet(args) as fleet:
        plan, _ = setting.run_meant(args, fleet, live_first=True)
        only = None if not (args.limit or args.exclude) else frozenset(host.name for host in setting.where_to_look(args)[0])
        grace_s = 0.0 if args.now else plan.stop_grace_s if args.grace is None else args.grace
        headway = Headway(terminal_of(sys.stderr, args.color), "stopped", len(plan.hosts) if only is None else len(only))

        def done(host: str, result: Any) -> None:
            if isinstance(result, Stopped) and not args.quiet:
                headway.done(host)

        def again(errors: dict[str, Any]) -> None:
            if not args.quiet:
                headway.again({host: error.what for host, error in errors.items()})

        results = stop(fleet, plan, grace_s=grace_s, hosts=only, on_done=done, on_again=again)
        headway.end()
        good, bad = split(results)
        if args.json:
            print(json.dumps(_as_json(plan.run, results)))
        elif not args.quiet:
            _say(args, plan.run, results)
        return worst([*(error.exit_code for error in bad.values()), *(5 for done in good.values() if done.survivors)])


def _as_json(run: str, results: dict[str, Any]) -> dict[str, Any]:
    rows = _rows(results)
    for row in rows:
        row["survivors"] = [survivor["pid"] for survivor in row["survivors"]]
    return {"run": run, "ok": all(row["ok"] for row in rows), "hosts": rows}


def _rows(results: dict[str, Any]) -> list[dict[str, Any]]:
    from tfdeploy.errors import TfdeployError

    rows = []
    for host, result in results.items():
        failed = isinstance(result, TfdeployError)
        survivors = [] if failed else list(result.survivors)
        error = result.what if failed else None
        rows.append({"host": host, "ok": not failed and not survivors, "survivors": survivors, "error": error})
    return rows


def _say(args: argparse.Namespace, run: str, results: dict[str, Any]) -> None:
    from tfdeploy.errors import HostUnreachable
    from tfdeploy.model.folding import fold_names
    from tfdeploy.operations.stop import Stopped
    from tfdeploy.ui.reports import show_stop
    from tfdeploy.ui.terminal import terminal_of

    rows = _rows(results)
    show_stop(terminal_of(sys.stderr, args.color), rows)
    if all(row["ok"] for row in rows):
        print(f"{run}: nothing of it is alive", file=sys.stderr)
        return
    away = [host for host, result in results.items() if isinstance(result, HostUnreachable)]
    messengers = [host for host, result in results.items() if isinstance(result, Stopped) and result.messenger]
    if away and messengers:
        told = f"{fold_names(messengers)} tell{'s' if len(messengers) == 1 else ''} {fold_names(away)} to stop"
        print(f"{told} as soon as they meet, for a day", file=sys.stderr)
    print(f"`tfdeploy stop {run}` again finishes it", file=sys.stderr)
