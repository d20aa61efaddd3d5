"""What `tfdeploy logs` takes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal, get_args

from tfdeploy.cli.declared import option, switch
from tfdeploy.cli.flags import OneRunFlags
from tfdeploy.cli.options import integer_reader, moment, positive

_SELECTION_TITLE = "which lines"
_DISPLAY_TITLE = "how they are shown"
_selection_option = partial(option, group=_SELECTION_TITLE)
_repeatable_option = partial(option, group=_SELECTION_TITLE, action="append")
MAX_CONTEXT_LINES = 1000
Format = Literal["text", "json", "raw"]


def _read_line_count(text: str) -> int | None:
    return None if text in ("all", "-1") else integer_reader("a number of lines")(text)


@dataclass(frozen=True, kw_only=True)
class Flags(OneRunFlags):
    description = (
        "The merged logs of a run: task@host | line. A Python traceback comes as one block."
    )

    follow: bool = switch(
        "-f",
        "--follow",
        group=_SELECTION_TITLE,
        help="go on until all tasks have ended, or until --until",
    )
    lines: int | None = _selection_option(
        "-n",
        "--lines",
        "--tail",
        type=_read_line_count,
        metavar="N",
        help="only the last N of the wanted lines of each task; all: every line",
    )
    since: float | None = _selection_option(
        "--since",
        type=moment,
        metavar="WHEN",
        help="not older than that: 1h30m ago, a time as 2026-11-22T10:00:00Z (local without Z or "
        "offset), "
        "a date (its local midnight)",
    )
    until: float | None = _selection_option(
        "--until", type=moment, metavar="WHEN", help="not newer than that, written as for --since"
    )
    task: list[str] | None = _repeatable_option(
        "--task",
        metavar="TASKS",
        help="of these tasks or roles: worker:0, worker, worker:[0-2,5], w*; several with commas, "
        "or again",
    )
    host: list[str] | None = _repeatable_option(
        "--host", metavar="HOSTS", help="of tasks on these hosts: n2, gpu[03-10], n*"
    )
    grep: list[str] | None = _repeatable_option(
        "--grep", metavar="RE", help="that this regular expression finds; again: or this one"
    )
    exclude_grep: list[str] | None = _repeatable_option(
        "--exclude-grep", metavar="RE", help="that this one does not find; again: nor this one"
    )
    ignore_case: bool = switch(
        "--ignore-case",
        group=_SELECTION_TITLE,
        help="of letters in these expressions and in --highlight",
    )
    context: int = _selection_option(
        "-C",
        "--context",
        type=integer_reader(
            f"a number of lines, at most {MAX_CONTEXT_LINES}", maximum=MAX_CONTEXT_LINES
        ),
        default=0,
        metavar="N",
        help="with N lines of the same task before and after each that --grep finds; -- stands "
        "between groups",
    )
    attempt: int | None = _selection_option(
        "--attempt", type=positive, metavar="N", help="of each task's Nth start"
    )
    previous: bool = switch(
        "-p", "--previous", group=_SELECTION_TITLE, help="of the attempt before each task's newest"
    )
    stderr: bool = switch("--stderr", group=_SELECTION_TITLE, help="of standard error")

    timestamps: bool = switch(
        "-t",
        "--timestamps",
        group=_DISPLAY_TITLE,
        help="with the time (UTC) of each line; hosts' clocks are corrected",
    )
    highlight: list[str] | None = option(
        "--highlight",
        group=_DISPLAY_TITLE,
        action="append",
        metavar="RE",
        help="colour what this finds, where there is colour; again",
    )
    fold: bool = switch(
        "--fold",
        group=_DISPLAY_TITLE,
        help="show equal lines that several tasks write within half a second once: "
        "worker:[0-7]@n[1-8] | line "
        "(default: every line)",
    )
    output: Format = option(
        "-o",
        "--output",
        group=_DISPLAY_TITLE,
        choices=get_args(Format),
        default="text",
        help="raw: the bytes of the programs, which a terminal may obey: there it is asked first. "
        "--json is the same as -o json",
    )

    @property
    def format(self) -> Format:
        return "json" if self.json else self.output
