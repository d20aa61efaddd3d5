"""Compose the page of the timeline: a bar for the attempts of each task, then the history of the
run, with the cause of its failure first. The functions are pure."""

from __future__ import annotations

from tfdeploy.model.progress.run_progress import RunProgress
from tfdeploy.model.progress.trouble import CUT, STALLED
from tfdeploy.ui.amounts import format_duration
from tfdeploy.ui.cells import Row, Span, merge_spans, pad_or_cut, task_style
from tfdeploy.ui.dashboard.happenings import HistoryEntry
from tfdeploy.ui.dashboard.row_order import table_rows
from tfdeploy.ui.dashboard.scene import Frame
from tfdeploy.ui.sanitise import clean

# The width, in columns, of the name before a bar.
_NAME = 18


def timeline_page(frame: Frame, height: int) -> list[Row]:
    """Return all rows of the page. The bars take about half of the screen's `height` rows."""
    progress, now = frame.scene.progress, frame.now
    began = progress.started or now
    until = max(progress.ended or now, began + 1)
    width = frame.width - _NAME
    rows: list[Row] = [
        [Span(pad_or_cut("attempts", _NAME), "dim"), Span(_axis(until - began, width), "dim")]
    ]
    most = max(3, height // 2)
    for item in table_rows(
        progress, frame.troubles, frame.shown, most, sort="trouble", fold=None, open_role=None
    ):
        task = progress.tasks[item.tasks[0]]
        stalled = task.health_since if item.mark.rank in (CUT, STALLED) else None
        bar = _attempts_bar(progress, task.task, began, until, width, frame.scene.unicode, stalled)
        rows.append([Span(pad_or_cut(clean(item.name, 40), _NAME), task_style(task.task)), *bar])
    rows += [[], [Span("what has happened, with the time since the run began", "dim")]]
    return rows + [history_row(each, began) for each in frame.scene.filtered_history]


def history_row(entry: HistoryEntry, began: float) -> Row:
    since = f"+{format_duration(max(0.0, entry.time - began))}"
    first = "first: " if entry.first else ""
    return [
        Span(f"{since:>9} ", "dim"),
        Span(
            first + clean(entry.folded_text, 1024),
            f"bold {entry.style}" if entry.first else entry.style,
        ),
    ]


def _axis(lasted: float, width: int) -> str:
    text = format_duration(lasted)
    return "0 s" + text.rjust(max(len(text) + 1, width - 3))


def _attempts_bar(
    progress: RunProgress,
    task: str,
    began: float,
    until: float,
    width: int,
    unicode: bool,
    stalled: float | None,
) -> Row:
    """Return the bar of a task, from `began` to `until` (UTC seconds). `stalled`: UTC seconds at
    which the task stalled or its host became unreachable; None if neither has happened."""
    width = max(1, width)
    cells = [Span(" ")] * width
    deaths: list[int] = []

    def cell_of(time: float) -> int:
        return min(width - 1, max(0, int((time - began) / (until - began) * width)))

    for each in progress.attempts_of(task):
        first, last = (
            cell_of(each.started),
            max(cell_of(each.started), cell_of(each.ended or until)),
        )
        has_died = each.outcome not in (None, "succeeded", "stopped")
        style = "red" if has_died else "yellow" if each.outcome == "stopped" else "green"
        cells[first : last + 1] = [Span("█" if unicode else "=", style)] * (last + 1 - first)
        if has_died:
            deaths.append(last)
        if stalled is not None and each.ended is None:
            since = max(first, cell_of(stalled))
            cells[since : last + 1] = [Span("▒" if unicode else "-", "yellow")] * (last + 1 - since)
    # The marks of deaths are drawn last, because the next attempt may begin in the same cell.
    for death_cell in deaths:
        cells[death_cell] = Span("x", "bold red")
    return merge_spans(cells)
