"""Run `tfdeploy setup`: make the Python environment on every host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfdeploy.cli.arguments.setup import Flags
from tfdeploy.cli.fleet import lock_holder
from tfdeploy.cli.messages import print_next_commands
from tfdeploy.cli.output import print_json
from tfdeploy.cli.project import load_job, load_whole_and_selected_inventory
from tfdeploy.cli.state import tree_cache_folder
from tfdeploy.cli.views import open_transfer
from tfdeploy.errors import TfdeployError, worst_exit_code
from tfdeploy.model.output.rows import SetupRow
from tfdeploy.operations.outcomes import split_outcomes
from tfdeploy.operations.setup import describe_difference, find_version_differences, setup_job
from tfdeploy.text.row_values import copy_fields
from tfdeploy.ui.environments import show_setup

if TYPE_CHECKING:
    from tfdeploy.model.output.printed import PackageRow, SetupAnswer
    from tfdeploy.operations.setup import Environment


def run(flags: Flags) -> int:
    job = load_job(flags)
    whole, inventory = load_whole_and_selected_inventory(flags, job)
    with open_transfer(flags, flags.bwlimit) as (fleet, emit):
        cache = tree_cache_folder()
        results = setup_job(fleet, inventory.hosts, job, lock_holder(), cache, emit, whole.hosts)
    rows = [_make_row(host, result) for host, result in results.items()]
    different = find_version_differences(split_outcomes(results)[0])
    ok = all(row["ok"] for row in rows)
    if flags.json:
        differing: list[PackageRow] = [
            {"package": name, "versions": versions} for name, versions in different.items()
        ]
        answer: SetupAnswer = {"ok": ok, "hosts": rows, "differences": differing}
        print_json(answer)
    elif not flags.quiet or not ok:
        show_setup(flags.err, rows, [describe_difference(*each) for each in different.items()])
        print_next_commands(flags, results)
    return worst_exit_code(results.values())


def _make_row(host: str, result: Environment | TfdeployError) -> SetupRow:
    if isinstance(result, TfdeployError):
        nothing: dict[str, Any] = {"packages": {}, "made": False, "bytes_sent": 0}
        return copy_fields(SetupRow, host=host, ok=False, **nothing, error=result.what)
    fields = {"environment": result.folder, "seconds": round(result.seconds, 3)}
    return copy_fields(SetupRow, result, host=host, ok=True, **fields, error=None)
