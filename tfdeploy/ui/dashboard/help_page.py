"""Compose the page that explains the keys, the filter and the colours. The functions are pure."""

from __future__ import annotations

import textwrap

from tfdeploy.ui.cells import Row, Span

_HELP = (
    ("", "keys"),
    ("up down, k j", "choose a row"),
    (
        "Enter",
        "open the page of the chosen task: what is wrong, attempts, log, curves, plan, "
        "environment; "
        "on a folded row: unfold this row",
    ),
    ("c", "the run's curves: loss, rate, metrics, GPU, CPU"),
    ("t", "the timeline: attempts as bars, then all events, with the cause of a failure on top"),
    ("f", "show the log of the chosen task only; press f again for the logs of all tasks"),
    ("/", "filter rows, log and events (see below)"),
    ("s", "sort rows, each time in another order: trouble first, by task, by host, slowest first"),
    ("e", "fold rows that are alike, or show all"),
    ("space", "pause the log; PgUp PgDn Home End scroll it"),
    ("w", "wrap long lines of the log"),
    ("y", "show the log as plain text, outside the dashboard, so that you can copy it"),
    ("o", "open a shell on the chosen task's host"),
    ("d", "download the logs of the run to this machine"),
    ("x", "stop the run"),
    ("Esc", "go back; on the first page: remove the filter and unselect the row"),
    ("q, Ctrl-C", "leave; the run goes on (Ctrl-C undoes an unfinished launch)"),
    ("", ""),
    ("", "filter: a row must match all terms (separated by spaces); case does not matter"),
    ("worker", "tasks of a role; other examples: worker:3, worker:[0-7], w*"),
    ("@n3, n3", "tasks on a host; another example: @n[1-4]"),
    (
        "stalled",
        "tasks in a state: running, failed, killed, unreachable, slow, restarted; `trouble`: "
        "tasks that need a look",
    ),
    (
        "loss nan",
        'words of the log and the events; "in quotes": a phrase; regular expressions are possible '
        "too",
    ),
    ("!stalled", "a ! before a term: all except what the term selects"),
    ("", ""),
    ("", "reading it"),
    ("age", "time since the task's last line; the column trend shows the loss since the start"),
    (
        "bars of t",
        "each bar is an attempt: green runs or ended well, yellow is stalled or was stopped, red "
        "died (the x marks its death)",
    ),
    (
        "colours",
        "red: a dead task, yellow: a task that needs a look, green: a healthy task; the first "
        "death "
        "is the cause of a failure",
    ),
)
# The width, in columns, of a key or term before its explanation.
_LABEL = 16


def help_page(width: int) -> list[Row]:
    rows: list[Row] = []
    for label, text in _HELP:
        if not label:
            rows.append([Span(text, "dim")])
            continue
        first, *others = textwrap.wrap(text, max(20, width - _LABEL - 2))
        rows += [
            [Span(f"  {label:<{_LABEL}}", "bold"), Span(first)],
            *([Span(" " * (_LABEL + 2) + more)] for more in others),
        ]
    return rows
