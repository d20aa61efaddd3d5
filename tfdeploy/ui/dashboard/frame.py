"""Compose one frame of the dashboard as rows of exact width, for any size of screen.

The same data, size and time always give the same rows. Only visible rows are computed.
"""

from __future__ import annotations

from collections.abc import Mapping

from tfdeploy.model.progress.trends import find_slow_tasks
from tfdeploy.model.progress.trouble import TaskTrouble, classify_tasks
from tfdeploy.text.names import fold_names
from tfdeploy.ui.cells import Row, Span, fit_row, task_style, wrap_to_columns
from tfdeploy.ui.dashboard.curves_page import curves_page
from tfdeploy.ui.dashboard.header import cause_rows, head_row, steps_row
from tfdeploy.ui.dashboard.help_page import help_page
from tfdeploy.ui.dashboard.log_buffer import BufferedLine
from tfdeploy.ui.dashboard.row_filter import filterable_states, parse_filter
from tfdeploy.ui.dashboard.row_order import TableRow, table_rows
from tfdeploy.ui.dashboard.scene import Frame, Scene
from tfdeploy.ui.dashboard.task_page import task_page
from tfdeploy.ui.dashboard.task_rows import (
    TaskTable,
    fitting_columns,
    header_row,
    host_row,
    item_row,
)
from tfdeploy.ui.dashboard.timeline_page import history_row, timeline_page
from tfdeploy.ui.sanitise import clean
from tfdeploy.ui.tables import cell_width

# The table of tasks leaves at least this many rows to the log.
LOG_LEAST = 6
_KEYS = (
    "q leave",
    "? help",
    "Enter task",
    "/ filter",
    "c curves",
    "t timeline",
    "f follow",
    "s sort",
    "e fold",
    "w wrap",
    "y copy",
    "x stop",
)
_PAGE_KEYS = (
    "q leave",
    "Esc back",
    "up/down PgUp/PgDn scroll",
    "/ filter",
    "c curves",
    "t timeline",
    "? help",
)


def compose_frame(scene: Scene, width: int, height: int, now: float) -> list[Row]:
    """Return one frame of the dashboard: exactly `height` rows of `width` columns. Also record in
    `scene.view` what was drawn. `now`: UTC seconds, for elapsed times."""
    task_marks = classify_tasks(scene.progress, find_slow_tasks(scene.progress, scene.trends), now)
    frame = Frame(scene, task_marks, _apply_filter(scene, task_marks), width, height, now)
    head = _head_rows(frame)
    foot = [_foot_row(scene, width)] if height >= 6 else []
    free_rows = max(0, height - len(head) - len(foot))
    body = (
        _run_page_rows(frame, free_rows)
        if scene.view.page == "run"
        else _other_page_rows(frame, free_rows)
    )
    rows = [*head, *body][: height - len(foot)]
    rows += [[]] * (height - len(foot) - len(rows))
    return [fit_row(row, width) for row in rows + foot]


def _apply_filter(scene: Scene, troubles: Mapping[str, TaskTrouble]) -> list[str]:
    """Apply the filter to the log, and return the tasks that pass the filter."""
    progress, view, ring = scene.progress, scene.view, scene.ring
    states = (
        {name: filterable_states(mark, progress, name) for name, mark in troubles.items()}
        if view.filter
        else {}
    )
    view.parsed = parsed = parse_filter(
        view.filter, progress, {state for each in states.values() for state in each}
    )
    shown = list(progress.tasks)
    if parsed.selects_tasks:
        shown = [name for name in shown if parsed.passes(name, states[name])]
    if ring.set_filter(
        view.filter, parsed.text_test, frozenset(shown) if parsed.selects_tasks else None
    ):
        view.refresh_log()
    return shown


def _head_rows(frame: Frame) -> list[Row]:
    rows, progress = [head_row(frame)], frame.scene.progress
    if progress.cause:
        rows += cause_rows(frame)
    elif progress.state == "starting" and frame.height >= 8:
        rows.append(steps_row(progress))
    return rows


def _run_page_rows(frame: Frame, free_rows: int) -> list[Row]:
    """Return the rows of the first page: the table, the newest events and the log, in `free_rows`
    rows."""
    scene, width = frame.scene, frame.width
    titled, ruled = free_rows >= 8, free_rows >= 6
    strip = _newest_event_rows(
        frame, 4 if free_rows >= 26 else 3 if free_rows >= 20 else 2 if free_rows >= 16 else 0
    )
    room = max(0, free_rows - titled - ruled - (len(strip) + 1 if strip else 0))
    rows = _table_rows(frame, max(1, room // 2, room - LOG_LEAST), titled)
    if strip:
        rows += [_separator_row(scene, ["events"], width), *strip]
    if ruled:
        rows.append(_separator_row(scene, _log_title_parts(scene), width))
    return rows + _log_area(scene, max(0, free_rows - len(rows)), width)


def _table_rows(frame: Frame, max_rows: int, titled: bool) -> list[Row]:
    """Return a row for each task, or for each host while there are no tasks. Return at most
    `max_rows` rows, and one more for the headings if `titled`."""
    scene, width = frame.scene, frame.width
    progress, view, table = scene.progress, scene.view, TaskTable(scene)
    if not progress.tasks:
        shown = fitting_columns(table, (), width)
        hosts = list(progress.hosts.values())[:max_rows]
        return [
            *([header_row(shown)] if titled else []),
            *(host_row(host, shown) for host in hosts),
        ]
    view.items = drawn = table_rows(
        progress,
        frame.troubles,
        frame.shown,
        max_rows,
        sort=view.sort,
        fold=view.fold,
        open_role=view.open,
    )
    if not drawn:
        return [[Span(f"no task matches '{clean(view.filter, 40)}'; Esc shows all tasks", "dim")]]
    room = len(drawn) if len(drawn) <= max_rows else max(1, max_rows - 1)
    selected = 0 if view.chosen_row is None else drawn.index(view.chosen_row)
    first = max(0, min(selected - room // 2, len(drawn) - room))
    visible = drawn[first : first + room]
    shown = fitting_columns(table, visible, width)
    rows = [header_row(shown, sort={"pace": "steps/s"}.get(view.sort, view.sort))] if titled else []
    rows += [
        item_row(table, item, shown, selected=view.selected in item.tasks, width=width)
        for item in visible
    ]
    if room < len(drawn) and room < max_rows:
        rows.append(_left_out_row([*drawn[:first], *drawn[first + room :]]))
    return rows


def _left_out_row(left_out: list[TableRow]) -> Row:
    tasks = [task for item in left_out for task in item.tasks]
    in_trouble = [task for item in left_out if item.mark.needs_attention for task in item.tasks]
    row = [Span(f"+{len(tasks)} more", "dim")]
    return (
        [*row, Span(f", in trouble: {clean(fold_names(in_trouble), 200)}", "bold yellow")]
        if in_trouble
        else row
    )


def _newest_event_rows(frame: Frame, max_rows: int) -> list[Row]:
    """Return at most `max_rows` rows of the history: the cause of the run's failure, then the
    newest events."""
    passing = frame.scene.filtered_history if max_rows else []
    causes = [each for each in passing if each.first]
    newest = [each for each in passing if not each.first][len(causes) - max_rows :]
    began = frame.scene.progress.started or 0.0
    return [history_row(each, began) for each in (*causes, *newest)]


def _other_page_rows(frame: Frame, free_rows: int) -> list[Row]:
    """Return the visible rows of a page other than the first one. The page may be longer than
    `free_rows` rows."""
    progress, view = frame.scene.progress, frame.scene.view
    name = view.selected if view.selected in progress.tasks else next(iter(progress.tasks), None)
    if view.page == "curves":
        rows = curves_page(frame, free_rows)
    elif view.page == "timeline":
        rows = timeline_page(frame, free_rows)
    elif view.page == "task" and name is not None:
        rows = task_page(frame, name)
    else:
        rows = help_page(frame.width)
    view.page_rows = max(1, free_rows - 1)
    view.offset = max(0, min(view.offset, len(rows) - free_rows))
    below = len(rows) - view.offset - free_rows
    if below > 0 and free_rows > 1:
        more: Row = [Span(f"... {below + 1} more rows: PgDn", "dim")]
        return [*rows[view.offset : view.offset + free_rows - 1], more]
    return rows[view.offset : view.offset + free_rows]


def _separator_row(scene: Scene, parts: list[str], width: int) -> Row:
    line = "─" if scene.unicode else "-"
    text = f"{line * 2} {', '.join(parts)} "
    return [Span(text + line * max(0, width - cell_width(text)), "dim")]


def _log_title_parts(scene: Scene) -> list[str]:
    view, ring = scene.view, scene.ring
    parts = [f"log of {clean(view.followed, 40)}" if view.followed else "log"]
    if view.filter:
        parts.append(f"with '{clean(view.filter, 40)}'")
    if view.snapshot is not None:
        parts.append(f"{'paused' if view.paused else 'scrolled'}, {view.unseen_lines:,} new lines")
    elif ring.lines_per_s >= 1:
        parts.append(f"{ring.lines_per_s:,.0f} lines/s")
    if ring.dropped_lines:
        parts.append(f"{ring.dropped_lines:,} older lines no longer in memory")
    return parts


def _log_area(scene: Scene, max_rows: int, width: int) -> list[Row]:
    lines = scene.view.visible_lines(max_rows)
    if not lines and scene.view.filter and max_rows > 0:
        kept = f"{scene.ring.count_kept(scene.view.followed):,} lines"
        return [
            [
                Span(
                    f"none of the {kept} in memory contains '{clean(scene.view.filter, 40)}'; Esc "
                    "removes the filter",
                    "dim",
                )
            ]
        ]
    label = min(24, max((len(_line_label(line)) for line in lines), default=0))
    drawn = [
        row
        for line in lines
        for row in _rows_of_line(line, label, width if scene.view.wrap else None)
    ]
    return drawn[max(0, len(drawn) - max_rows) :]


def _line_label(line: BufferedLine) -> str:
    return f"{line.task}@{line.host}" if line.host else line.task


def _rows_of_line(line: BufferedLine, label_width: int, width: int | None) -> list[Row]:
    """Return a line of the log as rows: as many rows as the text needs in `width` columns, or one
    row if `width` is None. `label_width`: the width of the task name before the line, in
    columns."""
    name = clean(_line_label(line), 64).ljust(label_width)[: max(label_width, 1)]
    style = line.style or ""
    head = Span(name, style or task_style(line.task))
    if width is None:
        return [[head, Span(f" | {clean(line.text, 1024)}", style)]]
    pieces = wrap_to_columns(clean(line.text), max(8, width - label_width - 3))
    return [
        [head if not index else Span(" " * len(name)), Span(f" | {piece}", style)]
        for index, piece in enumerate(pieces)
    ]


def _foot_row(scene: Scene, width: int) -> Row:
    view = scene.view
    if view.typing:
        return [
            Span(f"/{clean(view.filter, 200)}", "bold"),
            Span(" ", "reverse"),
            Span(
                "  Enter keeps the filter, Esc removes it; examples: worker, @n3, stalled, "
                "!stalled",
                "dim",
            ),
        ]
    if view.question is not None:
        return [
            Span(f"{clean(view.question.text, 200)} ", "bold yellow"),
            Span("y yes, any other key no", "bold"),
        ]
    if view.aside is not None:
        return [
            Span(f"{clean(view.aside.text, 200)} ", "bold yellow"),
            Span("yes, after the launch. Esc withdraws it, Ctrl-C undoes the launch", "bold"),
        ]
    if view.page == "help":
        return [Span("PgUp PgDn scroll, any other key goes back", "dim")]
    shown_keys = ""
    for key in _KEYS if view.page == "run" else _PAGE_KEYS:
        longer = f"{shown_keys}   {key}" if shown_keys else key
        if cell_width(longer) > width and shown_keys:
            break
        shown_keys = longer
    return [Span(shown_keys, "dim")]
