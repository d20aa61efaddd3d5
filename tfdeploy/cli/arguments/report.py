"""What `tfdeploy report` takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from tfdeploy.cli.declared import option, switch
from tfdeploy.cli.flags import OneRunFlags
from tfdeploy.cli.options import port

Output = Literal["html", "csv"]


@dataclass(frozen=True, kw_only=True)
class Flags(OneRunFlags):
    description = (
        "One HTML file about a run: plan, curves, timeline, events, the first cause. It needs no "
        "network."
    )

    to: str | None = option(
        "--to", metavar="FILE", help="where it is written (default: RUN.html or RUN.csv here)"
    )
    output: Output = option(
        "-o",
        "--output",
        choices=get_args(Output),
        default="html",
        help="csv: its samples for spreadsheets, a row for each task and time (default: html)",
    )
    overwrite: bool = switch("--overwrite", help="replace an existing file")
    open: bool = switch("--open", help="open it in the browser")
    serve: bool = switch("--serve", help="show it live, on loopback, until Ctrl-C")
    port: int | None = option(
        "--port",
        type=port,
        metavar="N",
        help="with --serve: the port here (default: any that is free)",
    )
