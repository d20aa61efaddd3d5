"""Declare the flags of `tfdeploy logs`."""

from __future__ import annotations

from functools import partial
from typing import Literal, get_args

from tfdeploy.cli.declared import option, switch
from tfdeploy.cli.flags import OneRunFlags
from tfdeploy.cli.options import integer_reader, moment, positive

_SELECTION_TITLE = "which lines"
_DISPLAY_TITLE = "how they are shown"
_selection_option = partial(option, group=_SELECTION_TITLE)
_selection_switch = partial(switch, group=_SELECTION_TITLE)
_repeatable_option = partial(option, group=_SELECTION_TITLE, action="append")
MAX_CONTEXT_LINES = 1000
Format = Literal["text", "json", "raw"]


def _read_line_count(text: str) -> int | None:
    """Return the number of lines, or None for `all` and -1. Raises ArgumentTypeError."""
    return None if text in ("all", "-1") else integer_reader("a number of lines")(text)


class Flags(OneRunFlags):
    description = (
        "Print the merged logs of a run: task@host | line. A Python traceback stays one block."
    )

    follow: bool = _selection_switch(
        "-f",
        "--follow",
        help="also print new lines until all tasks have ended, or until the time of --until",
    )
    lines: int | None = _selection_option(
        "-n",
        "--lines",
        "--tail",
        type=_read_line_count,
        metavar="N",
        help="only the last N selected lines of each task; if N is all, every line",
    )
    since: float | None = _selection_option(
        "--since",
        type=moment,
        metavar="WHEN",
        help="only lines since WHEN: a time before now (1h30m), a moment (2026-11-22T10:00:00Z, or "
        "local time without Z or offset), or a date (its local midnight)",
    )
    until: float | None = _selection_option(
        "--until", type=moment, metavar="WHEN", help="only lines up to WHEN, written as for --since"
    )
    task: list[str] | None = _repeatable_option(
        "--task",
        metavar="TASKS",
        help="only these tasks or roles, such as worker:0, worker, worker:[0-2,5] or w* (separate "
        "several with commas, or repeat the flag)",
    )
    host: list[str] | None = _repeatable_option(
        "--host", metavar="HOSTS", help="only tasks on these hosts: n2, gpu[03-10], n* (repeatable)"
    )
    grep: list[str] | None = _repeatable_option(
        "--grep",
        metavar="RE",
        help="only lines that match RE, and tracebacks with such a line (repeatable; any match "
        "counts)",
    )
    exclude_grep: list[str] | None = _repeatable_option(
        "--exclude-grep",
        metavar="RE",
        help="leave out lines that match RE; with --grep or --errors, also leave out tracebacks "
        "that have such a line (repeatable; any match counts)",
    )
    errors: bool = _selection_switch(
        "--errors",
        help="only lines that report an error, and whole tracebacks with their attempt and time",
    )
    ignore_case: bool = _selection_switch(
        "--ignore-case", help="ignore case in --grep, --exclude-grep and --highlight"
    )
    context: int = _selection_option(
        "-C",
        "--context",
        type=integer_reader(
            f"a number of lines, at most {MAX_CONTEXT_LINES}", maximum=MAX_CONTEXT_LINES
        ),
        default=0,
        metavar="N",
        help="also N lines of the same task before and after each line that --grep or --errors "
        "selects; a line with -- separates groups",
    )
    attempt: int | None = _selection_option(
        "--attempt", type=positive, metavar="N", help="only the Nth attempt of each task"
    )
    previous: bool = _selection_switch(
        "-p", "--previous", help="only the attempt before each task's newest one"
    )
    stderr: bool = _selection_switch("--stderr", help="only standard error")

    timestamps: bool = switch(
        "-t",
        "--timestamps",
        group=_DISPLAY_TITLE,
        help="print the time (UTC) of each line; the hosts' clocks are corrected",
    )
    highlight: list[str] | None = option(
        "--highlight",
        group=_DISPLAY_TITLE,
        action="append",
        metavar="RE",
        help="highlight what matches RE, if colours are used (repeatable)",
    )
    fold: bool = switch(
        "--fold",
        group=_DISPLAY_TITLE,
        help="print a line once if several tasks write it within half a second: "
        "worker:[0-7]@n[1-8] | line",
    )
    output: Format = option(
        "-o",
        "--output",
        group=_DISPLAY_TITLE,
        choices=get_args(Format),
        default="text",
        help="raw: the unchanged bytes of the programs; they could control a terminal, so tfdeploy "
        "asks before it prints them there; json: the same as --json (default: text)",
    )

    @property
    def format(self) -> Format:
        """Return the output format that --json or --output asks for."""
        return "json" if self.json else self.output
