"""Run `tfdeploy sync`: copy code and data to every host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from tfdeploy import config
from tfdeploy.cli.arguments.sync import Flags
from tfdeploy.cli.consent import make_confirm
from tfdeploy.cli.fleet import lock_holder, start_early_connections
from tfdeploy.cli.interrupts import RELEASING_LOCKS, interrupt_on_first_signal
from tfdeploy.cli.messages import print_next_commands
from tfdeploy.cli.output import print_json
from tfdeploy.cli.project import load_job, load_whole_and_selected_inventory
from tfdeploy.cli.state import tree_cache_folder
from tfdeploy.cli.views import open_transfer
from tfdeploy.errors import TfdeployError, UsageError, worst_exit_code
from tfdeploy.model.output.rows import SyncRow
from tfdeploy.operations.connecting import Connecting
from tfdeploy.operations.outcomes import split_outcomes
from tfdeploy.planning.datasets import split_data_names
from tfdeploy.text.row_values import copy_fields
from tfdeploy.ui.reports import show_forecast, show_sync

if TYPE_CHECKING:
    from tfdeploy.model.events import BroadcastFields, Event
    from tfdeploy.model.inventory import Host, Inventory
    from tfdeploy.model.job import Job
    from tfdeploy.model.output.printed import ForecastAnswer, SyncAnswer
    from tfdeploy.model.output.rows import BroadcastRow
    from tfdeploy.operations.sending.forecast import ExpectedTransfer
    from tfdeploy.operations.sending.send_code import SyncResult


def run(flags: Flags) -> int:
    job = config.with_data_via(load_job(flags), flags.via)
    whole, inventory = load_whole_and_selected_inventory(flags, job)
    config.check_source_hosts(job, whole)
    hosts = inventory.hosts
    if split_data_names(job) and hosts != whole.hosts:
        what = f"data set {split_data_names(job)[0]} is split among all workers: select all hosts"
        raise UsageError(what, where="--limit, --exclude", next="leave out --limit and --exclude")
    start_early_connections(hosts)
    if flags.dry_run:
        return _show_forecast(flags, hosts, job, whole)
    broadcasts: list[BroadcastRow] = []
    with (
        open_transfer(flags, flags.bwlimit) as (fleet, show),
        interrupt_on_first_signal(RELEASING_LOCKS),
    ):
        connecting = Connecting(fleet, hosts)
        from tfdeploy.operations.sync import sync_job

        def emit(event: Event) -> None:
            show(event)
            if event.kind == "broadcast" and event.data["state"] == "done":
                broadcasts.append(_make_broadcast_row(cast("BroadcastFields", event.data)))

        results = sync_job(
            fleet,
            hosts,
            job,
            lock_holder(),
            tree_cache_folder(),
            emit,
            make_confirm(flags),
            whole,
            connecting,
            allow_secrets=flags.allow_secrets_in_code,
        )
    rows = [_make_row(host, result) for host, result in results.items()]
    ok = all(row["ok"] for row in rows)
    if flags.json:
        answer: SyncAnswer = {"ok": ok, "hosts": rows, "broadcasts": broadcasts}
        print_json(answer)
    elif not flags.quiet or not ok:
        show_sync(flags.err, rows)
        print_next_commands(flags, results)
    return worst_exit_code(results.values())


def _show_forecast(flags: Flags, hosts: tuple[Host, ...], job: Job, whole: Inventory) -> int:
    """Print what a sync would send. Nothing is sent."""
    from tfdeploy.operations.sending.forecast import forecast_sync

    with open_transfer(flags, flags.bwlimit) as (fleet, emit):
        cache, allow = tree_cache_folder(), flags.allow_secrets_in_code
        forecasts, broadcasts = forecast_sync(
            fleet, hosts, job, cache, emit, whole, allow_secrets=allow
        )
    rows = [_make_row(host, each) for host, each in forecasts.items()]
    expected, errors = split_outcomes(forecasts)
    if flags.json:
        answer: ForecastAnswer = {
            "ok": not errors,
            "dry_run": True,
            "hosts": rows,
            "broadcasts": broadcasts,
        }
        print_json(answer)
    else:
        sent = {host: each.bytes_by_item for host, each in expected.items()}
        show_forecast(flags.out, rows, broadcasts, sent)
        print_next_commands(flags, errors)
    return worst_exit_code(errors.values())


def _make_row(host: str, result: ExpectedTransfer | SyncResult | TfdeployError) -> SyncRow:
    if isinstance(result, TfdeployError):
        return copy_fields(SyncRow, host=host, ok=False, bytes_sent=0, error=result.what)
    seconds = None if result.seconds is None else round(result.seconds, 3)
    fields: dict[str, Any] = {"from": result.source or "control", "seconds": seconds}
    return copy_fields(SyncRow, result, host=host, ok=True, error=None, **fields)


def _make_broadcast_row(fields: BroadcastFields) -> BroadcastRow:
    total, seconds = fields.get("total_bytes", 0), fields.get("seconds", 0.0)
    slowest = fields.get("slowest")
    return {
        "what": fields["what"],
        "hosts": fields.get("hosts", 0),
        "bytes": total,
        "bytes_from_here": fields.get("sent_bytes", 0),
        "seconds": round(seconds, 3),
        "rate": round(total / seconds) if seconds else 0.0,
        "stripes": fields["stripes"],
        "feeds": [
            {"from": parent or "control", "to": to, "stripe": stripe}
            for parent, to, stripe in fields["feeds"]
        ],
        "slowest": slowest
        and {
            "host": slowest["host"],
            "from": [parent or "control" for parent in slowest["parents"]],
            "rate": round(slowest["rate"]),
        },
    }
