"""`tfdeploy sync`: code and data to every host."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Any

from tfdeploy.cli.flags import CommonFlags, carried_out_by

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfdeploy.errors import TfdeployError
    from tfdeploy.model.rows import SyncRow
    from tfdeploy.operations.sync import Synced


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser("sync", help="code and data to every host", description="Puts code and data on every host.")
    carried_out_by(parser, CommonFlags, run)


def run(flags: CommonFlags) -> int:
    from tfdeploy.cli import setting
    from tfdeploy.cli.interrupts import LETTING_GO, patiently
    from tfdeploy.cli.views import transfer_view
    from tfdeploy.errors import TfdeployError, worst
    from tfdeploy.operations.sync import sync_job

    job = setting.load_job(flags)
    inventory = setting.load_inventory(flags, job)
    holder = setting.holder().as_json(time.time())
    with setting.open_fleet(flags) as fleet, transfer_view(flags) as emit, patiently(LETTING_GO):
        results = sync_job(fleet, inventory.hosts, job, holder, setting.state_folder() / "trees", emit, setting.asking(flags))
    rows = [_row(host, result) for host, result in results.items()]
    ok = all(row["ok"] for row in rows)
    if flags.json:
        print(json.dumps({"ok": ok, "hosts": rows}))
    elif not flags.quiet or not ok:
        _say(flags, rows, results)
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
        "from": "control",
        "seconds": round(result.seconds, 3),
        "error": None,
    }


def _say(flags: CommonFlags, rows: list[SyncRow], results: Mapping[str, object]) -> None:
    from tfdeploy.ui.reports import show_next, show_sync
    from tfdeploy.ui.terminal import terminal_of

    terminal = terminal_of(sys.stderr, flags.color)
    show_sync(terminal, rows)
    show_next(terminal, flags.nexts(results))
