"""`tfdeploy report [RUN]`: one HTML page about a run: written to a file, or served on loopback
while the run goes on. Or its samples as CSV."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from tfdeploy.cli.arguments.report import Flags
from tfdeploy.cli.browser import open_in_browser, opened_in_browser
from tfdeploy.cli.chosen_run import chosen_run
from tfdeploy.cli.fleet import open_fleet
from tfdeploy.cli.messages import show_errors, show_unasked
from tfdeploy.cli.output import say
from tfdeploy.cli.state import run_store
from tfdeploy.cli.written_page import check_target, write_page
from tfdeploy.errors import UsageError, worst
from tfdeploy.model.report.sample_table import sample_table
from tfdeploy.operations.report import report
from tfdeploy.ui.csv_text import csv_text
from tfdeploy.ui.report.page import page

if TYPE_CHECKING:
    from tfdeploy.model.output.printed import ReportAnswer, ServedAnswer
    from tfdeploy.operations.status import Status


def run(flags: Flags) -> int:
    if flags.serve and (flags.to or flags.overwrite):
        raise UsageError(
            "--serve writes no file", where="--to/--overwrite", next="leave out --serve, or both"
        )
    if flags.output == "csv" and (flags.serve or flags.open):
        raise UsageError(
            "a browser shows the page, not the samples",
            where="--output csv",
            next="leave out --serve and --open",
        )
    if flags.port is not None and not flags.serve:
        raise UsageError("--port is for a page that is served", where="--port", next="add --serve")
    with open_fleet(flags) as fleet:
        plan, only, plan_code = chosen_run(flags, fleet)
        target = Path(flags.to) if flags.to else Path(f"{plan.run}.{flags.output}")
        if not flags.serve:
            check_target(target, flags.overwrite)

        def make(live: bool) -> tuple[str, Status]:
            found, stands = report(fleet, plan, run_store(), only)
            text = (
                csv_text(*sample_table(found)) if flags.output == "csv" else page(found, live=live)
            )
            return text, stands

        if flags.serve:
            return _serve(flags, plan.run, lambda: make(True)[0])
        text, found = make(False)
        write_page(target, text, flags.overwrite)
        answer: ReportAnswer = {"run": plan.run, "file": str(target)}
        print(json.dumps(answer) if flags.json else target)
        show_errors(flags, found.errors, "not in the report: ")
        show_unasked(flags, found.view.unasked)
        if flags.open:
            open_in_browser(target.resolve().as_uri())
        return worst([plan_code, *found.errors.values()])


def _serve(flags: Flags, run: str, make: Callable[[], str]) -> int:
    from tfdeploy.cli.served_page import ServedPage

    try:
        server = ServedPage(make, flags.port or 0)
    except OSError as error:
        raise UsageError(
            f"port {flags.port}: {error.strerror}",
            where="--port",
            next="leave it out: any free one",
        ) from error
    answer: ServedAnswer = {"run": run, "url": server.url}
    print(json.dumps(answer) if flags.json else server.url, flush=True)
    if not flags.quiet:
        say("Ctrl-C ends it")
    try:
        with opened_in_browser(server.url) if flags.open else nullcontext():
            server.serve_forever()
    except KeyboardInterrupt:
        return 0
    finally:
        server.server_close()
    return 0
