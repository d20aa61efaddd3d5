"""`tfdeploy report [RUN]`: one HTML page about a run: written to a file, or served on loopback while the run goes on. Or its
samples as CSV."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tfdeploy.cli.flags import OfRun, finish_parser
from tfdeploy.cli.options import port
from tfdeploy.errors import UsageError

if TYPE_CHECKING:
    from tfdeploy.model.printed import ReportAnswer, ServedAnswer
    from tfdeploy.model.report import RunReport
    from tfdeploy.operations.status import Status


@dataclass(frozen=True, kw_only=True)
class Flags(OfRun):
    to: str | None = None
    output: Literal["html", "csv"] = "html"
    overwrite: bool = False
    open: bool = False
    serve: bool = False
    port: int | None = None


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "report",
        help="one HTML page about a run",
        description="One HTML file about a run: plan, curves, timeline, events, the first cause. It needs no network.",
    )
    parser.add_argument("wanted", nargs="?", metavar="RUN", help="id or unique prefix (default: the newest of this job)")
    parser.add_argument("--to", metavar="FILE", help="where it is written (default: RUN.html or RUN.csv here)")
    what = "csv: its samples for spreadsheets, a row for each task and time (default: html)"
    parser.add_argument("-o", "--output", choices=("html", "csv"), default="html", help=what)
    parser.add_argument("--overwrite", action="store_true", help="replace an existing file")
    parser.add_argument("--open", action="store_true", help="open it in the browser")
    parser.add_argument("--serve", action="store_true", help="show it live, on loopback, until Ctrl-C")
    parser.add_argument("--port", type=port, metavar="N", help="with --serve: the port here (default: any that is free)")
    finish_parser(parser, Flags, run)


def run(flags: Flags) -> int:
    from tfdeploy.cli import context
    from tfdeploy.cli.browser import open_in_browser
    from tfdeploy.cli.written_page import check_target, write_page
    from tfdeploy.errors import worst

    if flags.serve and (flags.to or flags.overwrite):
        raise UsageError("--serve writes no file", where="--to/--overwrite", next="leave out --serve, or both")
    if flags.output == "csv" and (flags.serve or flags.open):
        raise UsageError("a browser shows the page, not the samples", where="--output csv", next="leave out --serve and --open")
    if flags.port is not None and not flags.serve:
        raise UsageError("--port is for a page that is served", where="--port", next="add --serve")
    with context.open_fleet(flags) as fleet:
        plan, only, plan_code = context.chosen_run(flags, fleet)
        target = Path(flags.to) if flags.to else Path(f"{plan.run}.{flags.output}")
        if not flags.serve:
            check_target(target, flags.overwrite)

        def make(live: bool) -> tuple[str, Status]:
            from tfdeploy.operations.report import report

            found, stands = report(fleet, plan, context.store(), only)
            return _text(flags, found, live), stands

        if flags.serve:
            return _serve(flags, plan.run, lambda: make(True)[0])
        text, found = make(False)
        write_page(target, text, flags.overwrite)
        answer: ReportAnswer = {"run": plan.run, "file": str(target)}
        print(json.dumps(answer) if flags.json else target)
        context.show_errors(flags, found.errors, "not in the report: ")
        context.show_unasked(flags, found.view.unasked)
        if flags.open:
            open_in_browser(target.resolve().as_uri())
        return worst([plan_code, *(error.exit_code for error in found.errors.values())])


def _text(flags: Flags, found: RunReport, live: bool) -> str:
    if flags.output == "csv":
        from tfdeploy.model.sample_table import sample_table
        from tfdeploy.ui.csv_text import csv_text

        return csv_text(*sample_table(found))
    from tfdeploy.ui.report.page import page

    return page(found, live=live)


def _serve(flags: Flags, run: str, make: Callable[[], str]) -> int:
    from tfdeploy.cli.browser import opened_in_browser
    from tfdeploy.cli.served_page import ServedPage

    try:
        server = ServedPage(make, flags.port or 0)
    except OSError as error:
        raise UsageError(f"port {flags.port}: {error.strerror}", where="--port", next="leave it out: any free one") from error
    answer: ServedAnswer = {"run": run, "url": server.url}
    print(json.dumps(answer) if flags.json else server.url, flush=True)
    if not flags.quiet:
        print("Ctrl-C ends it", file=sys.stderr)
    try:
        with opened_in_browser(server.url) if flags.open else nullcontext():
            server.serve_forever()
    except KeyboardInterrupt:
        return 0
    finally:
        server.server_close()
    return 0
