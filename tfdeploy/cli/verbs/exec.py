"""Run `tfdeploy exec`: run a command on every host at once, and print equal outputs only once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdeploy.cli.arguments.exec import Flags
from tfdeploy.cli.fleet import open_fleet, start_early_connections
from tfdeploy.cli.messages import print_next_commands
from tfdeploy.cli.output import print_json, print_message
from tfdeploy.cli.project import load_selected_inventory
from tfdeploy.errors import TfdeployError, UsageError, worst_exit_code
from tfdeploy.model.output.rows import ExecRow
from tfdeploy.text.row_values import copy_fields
from tfdeploy.ui.reports import show_exec

if TYPE_CHECKING:
    from tfdeploy.model.output.printed import ExecAnswer
    from tfdeploy.transport.protocols import Completed


def run(flags: Flags) -> int:
    if not flags.after_dashes:
        raise UsageError("no command", where="tfdeploy exec", next="`tfdeploy exec -- nvidia-smi`")
    inventory = load_selected_inventory(flags)
    start_early_connections(inventory.hosts)
    argv = flags.after_dashes  # a single element is a script for `sh -c`
    with open_fleet(flags) as fleet:
        try:
            results = fleet.each(
                inventory.hosts, lambda session: session.run(argv, timeout_s=flags.timeout)
            )
        except KeyboardInterrupt:
            print_message("the command may still run on the hosts")
            raise
    rows = [_make_row(host, result) for host, result in results.items()]
    ok = all(row["exit_code"] == 0 for row in rows)
    if flags.json:
        answer: ExecAnswer = {"ok": ok, "hosts": rows}
        print_json(answer)
    elif not flags.quiet or not ok:
        show_exec(flags.out, flags.err, rows)
        print_next_commands(flags, results)
    return worst_exit_code(
        [*results.values(), *(1 for row in rows if row["exit_code"] != 0 and row["error"] is None)]
    )


def _make_row(host: str, result: Completed | TfdeployError) -> ExecRow:
    if isinstance(result, TfdeployError):
        return copy_fields(ExecRow, host=host, stdout="", stderr="", error=result.what)
    stdout, stderr = (text.decode("utf-8", "replace") for text in (result.stdout, result.stderr))
    seconds = round(result.seconds, 3)
    fields = {"host": host, "stdout": stdout, "stderr": stderr, "seconds": seconds}
    return copy_fields(ExecRow, result, **fields, error=None)
