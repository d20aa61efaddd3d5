"""Declare the flags of `tfdeploy report`."""

from __future__ import annotations

from typing import Literal, get_args

from tfdeploy.cli.declared import option, switch
from tfdeploy.cli.flags import OneRunFlags
from tfdeploy.cli.options import port

Output = Literal["html", "csv"]


class Flags(OneRunFlags):
    description = (
        "Write one HTML file about a run: plan, curves, timeline, events, first cause. The file "
        "needs no network."
    )

    to: str | None = option(
        "--to",
        metavar="FILE",
        help="write to FILE (default: RUN.html or RUN.csv in the current folder)",
    )
    output: Output = option(
        "-o",
        "--output",
        choices=get_args(Output),
        default="html",
        help="csv: the samples for spreadsheets, one row per task and time (default: html)",
    )
    overwrite: bool = switch("--overwrite", help="replace an existing file")
    open: bool = switch("--open", help="open the report in the browser")
    serve: bool = switch("--serve", help="serve the page on loopback, with live data, until Ctrl-C")
    port: int | None = option(
        "--port",
        type=port,
        metavar="N",
        help="with --serve: the port on this machine (default: any free port)",
    )
