"""`tfdeploy setup`: the Python environment on every host."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Any

from tfdeploy.cli.flags import CommonFlags, finish_parser
from tfdeploy.cli.options import add_bwlimit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfdeploy.errors import TfdeployError
    from tfdeploy.model.printed import PackageRow, SetupAnswer
    from tfdeploy.model.rows import SetupRow
    from tfdeploy.operations.setup import Environment


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "setup",
        help="the Python environment on every host",
        description="Makes the environment of the job's `setup:` on every host, by uv where it is there, else by pip. "
        "The same requirements and Python give the same environment: a second setup finds it.",
        epilog="-v shows what uv or pip say on each host.",
    )
    add_bwlimit(parser)
    finish_parser(parser, CommonFlags, run)


def run(flags: CommonFlags) -> int:
    from tfdeploy.cli import context
    from tfdeploy.cli.views import transfer_view
    from tfdeploy.errors import TfdeployError, worst
    from tfdeploy.model.selection import select
    from tfdeploy.operations.emit import notices_to
    from tfdeploy.operations.outcomes import split
    from tfdeploy.operations.setup import differences, setup_job

    job = context.load_job(flags)
    known = context.whole_inventory(flags, job)
    inventory = select(known, flags.limit, flags.exclude)
    holder = context.holder().as_json(time.time())
    with context.open_fleet(flags) as fleet, transfer_view(flags) as emit:
        fleet.on_notice = notices_to(emit)
        cache = context.state_folder() / "trees"
        results = setup_job(fleet, inventory.hosts, job, holder, cache, emit, known.hosts)
    rows = [_row(host, result) for host, result in results.items()]
    different = differences(split(results)[0])
    ok = all(row["ok"] for row in rows)
    if flags.json:
        differing: list[PackageRow] = [{"package": each.package, "versions": each.versions} for each in different]
        answer: SetupAnswer = {"ok": ok, "hosts": rows, "differences": differing}
        print(json.dumps(answer))
    elif not flags.quiet or not ok:
        _show(flags, rows, [each.words for each in different], results)
    return worst(result.exit_code for result in results.values() if isinstance(result, TfdeployError))


def _row(host: str, result: Environment | TfdeployError) -> SetupRow:
    from tfdeploy.errors import TfdeployError

    if isinstance(result, TfdeployError):
        return {
            "host": host,
            "ok": False,
            "environment": None,
            "python_version": None,
            "by": None,
            "packages": {},
            "made": False,
            "bytes_sent": 0,
            "seconds": None,
            "error": result.what,
        }
    return {
        "host": host,
        "ok": True,
        "environment": result.folder,
        "python_version": result.python_version,
        "by": result.by,
        "packages": result.packages,
        "made": result.made,
        "bytes_sent": result.bytes_sent,
        "seconds": round(result.seconds, 3),
        "error": None,
    }


def _show(flags: CommonFlags, rows: list[SetupRow], different: list[str], results: Mapping[str, object]) -> None:
    from tfdeploy.ui.environments import show_setup
    from tfdeploy.ui.reports import show_next
    from tfdeploy.ui.terminal import terminal_of

    terminal = terminal_of(sys.stderr, flags.color)
    show_setup(terminal, rows, different)
    show_next(terminal, flags.nexts(results))
