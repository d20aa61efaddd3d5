"""The page of the timeline: a bar for each task's attempts, then all that has happened, the first cause on top. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tfdeploy.model.progress import RunProgress
from tfdeploy.model.trouble import CUT, STALLED, Mark
from tfdeploy.ui.amounts import in_seconds
from tfdeploy.ui.cells import Row, Span, column, joined, task_style
from tfdeploy.ui.dashboard.happenings import Happening, Happenings
from tfdeploy.ui.dashboard.row_order import items
from tfdeploy.ui.sanitise import clean

_NAME = 18


def timeline_page(
    progress: RunProgress,
    marks: Mapping[str, Mark],
    happenings: Sequence[Happening],
    shown: Sequence[str],
    *,
    width: int,
    height: int,
    unicode: bool,
    now: float,
) -> list[Row]:
    """`shown`: the tasks that pass the filter; `happenings`: those that do. `now`: UTC seconds."""
    began = progress.started or now
    until = max(progress.ended or now, began + 1)
    rows: list[Row] = [[Span(column("attempts", _NAME), "dim"), Span(_axis(until - began, width - _NAME), "dim")]]
    for item in items(progress, marks, shown, max(3, height // 2), sort="trouble", fold=None, open_=None):
        stalled = progress.tasks[item.tasks[0]].health_since if item.mark.rank in (CUT, STALLED) else None
        bar = _bar(progress, item.tasks[0], began, until, width - _NAME, unicode, stalled)
        rows.append([Span(column(clean(item.name, 40), _NAME), task_style(item.tasks[0])), *bar])
    rows += [[], [Span("what has happened, by the time since the run began", "dim")]]
    return rows + [happening_row(each, began) for each in happenings]


def happening_row(each: Happening, began: float) -> Row:
    since = f"+{in_seconds(max(0.0, each.time - began))}"
    first = "first: " if each.first else ""
    return [
        Span(f"{since:>9} ", "dim"),
        Span(first + clean(each.words, 1024), f"bold {each.style}" if each.first else each.style),
    ]


def in_order(happenings: Happenings) -> list[Happening]:
    """The cause, then the others, the newest last."""
    cause = happenings.cause
    return [*([cause] if cause else []), *(each for each in happenings.all if each is not cause)]


def _axis(lasted: float, width: int) -> str:
    text = in_seconds(lasted)
    return "0 s" + text.rjust(max(len(text) + 1, width - 3))


def _bar(progress: RunProgress, task: str, began: float, until: float, width: int, unicode: bool, stalled: float | None) -> Row:
    """`stalled`: since when it is, or nothing is heard of it."""
    width = max(1, width)
    cells = [Span(" ")] * width
    full = "█" if unicode else "="
    deaths: list[int] = []
    for each in progress.attempts_of(task):
        end = each.end or until
        first = min(width - 1, max(0, int((each.start - began) / (until - began) * width)))
        last = min(width - 1, max(first, int((end - began) / (until - began) * width)))
        bad = each.outcome not in (None, "succeeded", "stopped")
        style = "red" if bad else "yellow" if each.outcome == "stopped" else "green"
        for at in range(first, last + 1):
            cells[at] = Span(full, style)
        if bad:
            deaths.append(last)
        if stalled is not None and each.end is None:
            since = min(width - 1, max(first, int((stalled - began) / (until - began) * width)))
            cells[since : last + 1] = [Span("▒" if unicode else "-", "yellow")] * (last + 1 - since)
    for at in deaths:  # the next attempt may begin in the same cell
        cells[at] = Span("x", "bold red")
    return joined(cells)
