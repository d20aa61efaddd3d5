"""Run `tfdeploy report`: write an HTML page about a run, or serve the page on loopback.

With -o csv, the verb writes the run's samples as CSV instead.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tfdeploy.cli.arguments.report import Flags
from tfdeploy.cli.browser import open_in_browser, open_secret_url
from tfdeploy.cli.chosen_run import choose_run
from tfdeploy.cli.fleet import open_fleet
from tfdeploy.cli.messages import print_unselected_hosts, show_errors
from tfdeploy.cli.output import print_message
from tfdeploy.cli.state import open_run_store
from tfdeploy.cli.written_page import check_page_target, write_page
from tfdeploy.errors import UsageError, worst_exit_code
from tfdeploy.model.report.run_report import sample_table
from tfdeploy.operations.report import report
from tfdeploy.ui.csv_text import csv_text
from tfdeploy.ui.report.page import report_page

if TYPE_CHECKING:
    from tfdeploy.model.output.printed import ReportAnswer, ServedAnswer
    from tfdeploy.operations.status import Status


def run(flags: Flags) -> int:
    if flags.serve and (flags.to or flags.overwrite):
        raise UsageError(
            "--serve writes no file",
            where="--to/--overwrite",
            next="leave out --serve, or --to and --overwrite",
        )
    if flags.output == "csv" and (flags.serve or flags.open):
        raise UsageError(
            "a browser shows only the page, not the samples",
            where="--output csv",
            next="leave out --serve and --open",
        )
    if flags.port is not None and not flags.serve:
        raise UsageError("--port needs --serve", where="--port", next="add --serve")
    with open_fleet(flags) as fleet:
        plan, only_hosts, plan_code = choose_run(flags, fleet)
        target = Path(flags.to) if flags.to else Path(f"{plan.run}.{flags.output}")
        if not flags.serve:
            check_page_target(target, flags.overwrite)

        def make_text(live: bool) -> tuple[str, Status]:
            run_report, status = report(fleet, plan, open_run_store(), only_hosts)
            if flags.output == "csv":
                return csv_text(*sample_table(run_report)), status
            return report_page(run_report, live=live), status

        if flags.serve:
            return _serve_page(flags, plan.run, lambda: make_text(True)[0])
        text, status = make_text(False)
        write_page(target, text, flags.overwrite)
        answer: ReportAnswer = {"run": plan.run, "file": str(target)}
        print(json.dumps(answer) if flags.json else target)
        show_errors(flags, status.errors, "not in the report: ")
        print_unselected_hosts(flags, status.view.unasked)
        if flags.open:
            open_in_browser(target.resolve().as_uri())
        return worst_exit_code([plan_code, *status.errors.values()])


def _serve_page(flags: Flags, run: str, make_page: Callable[[], str]) -> int:
    """Serve the page until Ctrl-C. Raises UsageError if the port is in use."""
    from tfdeploy.cli.served_page import ServedPage

    try:
        server = ServedPage(make_page, flags.port or 0)
    except OSError as error:
        raise UsageError(
            f"port {flags.port}: {error.strerror}",
            where="--port",
            next="leave --port out to use any free port",
        ) from error
    answer: ServedAnswer = {"run": run, "url": server.url}
    print(json.dumps(answer) if flags.json else server.url, flush=True)
    if not flags.quiet:
        print_message("Ctrl-C stops the server")
    opened = open_secret_url(server.url) if flags.open else nullcontext()
    with server, suppress(KeyboardInterrupt), opened:
        server.serve_forever()
    return 0
