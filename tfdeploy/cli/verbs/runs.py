"""Run `tfdeploy runs`: list the runs that the hosts report, whichever control machine has launched
them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from tfdeploy.cli.arguments.runs import Flags
from tfdeploy.cli.chosen_run import read_lookup_scope
from tfdeploy.cli.fleet import open_fleet
from tfdeploy.cli.messages import print_unselected_hosts, show_errors
from tfdeploy.cli.output import print_json, print_message
from tfdeploy.cli.state import open_run_store, store_completion_names
from tfdeploy.errors import worst_exit_code
from tfdeploy.model.output.rows import KnownRunRow
from tfdeploy.operations.runs import list_runs, select_rows
from tfdeploy.ui.reports import show_runs
from tfdeploy.ui.sanitise import clean

if TYPE_CHECKING:
    from tfdeploy.model.output.printed import RunsAnswer


def run(flags: Flags) -> int:
    with open_fleet(flags) as fleet:
        scope = read_lookup_scope(flags)
        job = None if flags.all or scope.job is None else scope.job.name
        rows, errors = list_runs(fleet, scope.hosts, open_run_store(), job)
    is_partial = bool(errors or scope.unselected_host_names)
    store_completion_names({"runs": [row["run"] for row in rows]}, keep_stored_names=is_partial)
    total, rows = len(rows), select_rows(rows, flags.state or (), flags.since)
    if flags.json:
        keys = KnownRunRow.__annotations__
        runs: list[Any] = [{key: row.get(key) for key in keys} for row in rows]
        answer: RunsAnswer = {"runs": runs, "unreachable": sorted(errors)}
        print_json(answer)
    else:
        show_runs(flags.out, rows, time.time())
        if not rows:
            text = (
                "no runs on the hosts that were asked"
                if scope.unselected_host_names
                else "no runs yet"
            )
            print_message(f"none of {total} runs matches --state and --since" if total else text)
    for row in rows:
        for host, why in row.get("damaged", {}).items():
            print_message(f"[{host}] the files of {row['run']} are damaged: {clean(why)}")
        if "doubt" in row:
            print_message(f"warning: {row['doubt']}")
        if error := row.get("differ"):
            print_message(f"{error.what}\n  next: {flags.add_file_flags(error.next or '')}")
    show_errors(flags, errors)
    print_unselected_hosts(flags, scope.unselected_host_names)
    return worst_exit_code(errors.values())
