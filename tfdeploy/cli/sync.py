"""`tfdeploy sync`: code and data to every host."""

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
    from tfdeploy.model.rows import SyncRow
    from tfdeploy.operations.sync import Synced


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser("sync", help="code and data to every host", description="Puts code and data on every host.")
    add_bwlimit(parser)
    finish_parser(parser, CommonFlags, run)


def run(flags: CommonFlags) -> int:
    from tfdeploy.cli import context
    from tfdeploy.cli.interrupts import RELEASING_LOCKS, interruptible_once
    from tfdeploy.cli.views import transfer_view
    from tfdeploy.errors import TfdeployError, worst

    job = context.load_job(flags)
    inventory = context.load_inventory(flags, job)
    context.begin_dialling(inventory.hosts)
    from tfdeploy.operations.sync import sync_job

    holder = context.holder().as_json(time.time())
    with context.open_fleet(flags) as fleet, transfer_view(flags) as emit, interruptible_once(RELEASING_LOCKS):
        results = sync_job(fleet, inventory.hosts, job, holder, context.state_folder() / "trees", emit, context.consent_of(flags))
    rows = [_row(host, result) for host, result in results.items()]
    ok = all(row["ok"] for row in rows)
    if flags.json:
        print(json.dumps({"ok": ok, "hosts": rows}))
    elif not flags.quiet or not ok:
        _show(flags, rows, results)
    return worst(result.exit_code for result in results.values() if isinstance(result, TfdeployError))


def _row(host: str, result: Synced | TfdeployError) -> SyncRow:
    from tfdeploy.errors import TfdeployError

    if isinstance(result, TfdeployError):
        return {"host": host, "ok": False, "release": None, "bytes_sent": 0, "from": None, "seconds": None, "error": result.what}
    return {
        "host": host,
        "ok": True,
        "release": result.release,
        "bytes_sent": result.bytes_sent,
        "from": result.source or "control",
        "seconds": round(result.seconds, 3),
        "error": None,
    }


def _show(flags: CommonFlags, rows: list[SyncRow], results: Mapping[str, object]) -> None:
    from tfdeploy.ui.reports import show_next, show_sync
    from tfdeploy.ui.terminal import terminal_of

    terminal = terminal_of(sys.stderr, flags.color)
    show_sync(terminal, rows)
    show_next(terminal, flags.nexts(results))
