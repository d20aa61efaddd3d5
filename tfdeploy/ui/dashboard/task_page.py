"""Compose the page of one task: its trouble, attempts, last lines, curves, plan and environment.
The functions are pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from functools import partial
from itertools import zip_longest
from typing import Any

from tfdeploy.model.plan import Plan, TaskPlan
from tfdeploy.model.progress.task_progress import TaskProgress
from tfdeploy.model.progress.trends import PACE, STEP, USES, Trend
from tfdeploy.model.progress.trouble import AGAIN, CUT, TaskTrouble, last_restart_cause
from tfdeploy.model.status.task_status import Attempt
from tfdeploy.ui.amounts import format_bytes, format_count, format_duration, format_number
from tfdeploy.ui.cells import Row, Span, fit_row, task_style, wrap_to_columns
from tfdeploy.ui.dashboard.scene import Frame, Scene
from tfdeploy.ui.plots import TITLES, UNITS, Curve, draw_plot
from tfdeploy.ui.sanitise import clean

# How many lines of the task's log are shown.
LOG_ROWS = 10
_MOST_ATTEMPTS = 8
# The maximum number of rows for one text.
_MOST_ROWS = 3
_PLOT_ROWS = 7
# The minimum width of a screen, in columns, to show two plots side by side.
_BESIDE = 100
_AFTER_DEATH = {
    "": "the run fails",
    "alone": "only this task starts again",
    "gang": "all tasks that restart together start again",
}
_NOTHING: list[Any] = []
_SECRET = re.compile(r"(?i)token|secret|passw|credential|api_?key|private")


def task_page(frame: Frame, name: str) -> list[Row]:
    """Return all rows of the page. They may be more rows than the screen has."""
    scene, width = frame.scene, frame.width
    task, plan = scene.progress.tasks[name], scene.progress.plan
    log = [
        row
        for line in scene.ring.last_texts_of(name, LOG_ROWS)
        for row in _wrapped_rows(clean(line), width)
    ]
    command = scene.add_options(
        f"`tfdeploy logs {clean(scene.progress.run or '')} --task {clean(name, 40)}`"
    )
    rows = [
        _title_row(task, frame.troubles[name]),
        *_fact_rows(frame, task, frame.troubles[name]),
        [],
        *_attempts_rows(frame, task),
        [],
        [Span(f"the last lines of {clean(name, 40)}", "dim")],
        *(log or [[Span("no line yet", "dim")]]),
        [Span("all: ", "dim"), Span(command, "bold")],
        [],
        *_plot_rows(scene, task, width),
    ]
    for planned in plan.tasks if plan else ():
        if plan and planned.task == name:
            rows += [[], *_plan_rows(plan, planned, width)]
    return rows


def _title_row(task: TaskProgress, mark: TaskTrouble) -> Row:
    style = "bold red" if mark.rank < CUT else "bold yellow" if mark.needs_attention else "green"
    return [
        Span(clean(task.task, 40), f"bold {task_style(task.task)}"),
        Span(f" on {clean(task.host, 64)}  "),
        Span(clean(mark.state, 40), style),
        Span("  this task decides the run's result" if task.deciding else "", "dim"),
    ]


def _fact_rows(frame: Frame, task: TaskProgress, mark: TaskTrouble) -> list[Row]:
    progress, width = frame.scene.progress, frame.width
    values = task.measures.newest_values
    busy, used = progress.gpu_use(task)
    rate, is_running = progress.own_steps_per_s(task), task.state == "running"
    figures = [
        f"step {format_number(values['step'], 7)}" if "step" in values else "",
        f"{format_number(rate, 3)} steps/s" if rate is not None else "",
        *(
            f"{clean(name, 40)} {format_number(values[name])}"
            for name in ("loss", *progress.extra_metrics)
            if name in values
        ),
    ]
    use = [
        f"CPU {100 * task.cpu:.0f}%" if task.cpu is not None else "",
        f"memory {format_bytes(task.memory)}" if task.memory is not None else "",
        f"GPU {busy:.0f}%" if busy is not None else "",
        f"GPU memory {format_bytes(used)}" if used is not None else "",
        f"pid {task.pid}" if task.pid and is_running else "",
        f"up for {format_duration(frame.now - task.started)}"
        if task.started and is_running
        else "",
        f"{task.lines:,} lines" if task.lines else "",
    ]
    style = "red" if mark.rank < CUT else "yellow" if mark.needs_attention else ""
    rows = _wrapped_rows(clean(mark.why), width, style) if mark.why else []
    if task.restarts and mark.rank != AGAIN:
        rows += _wrapped_rows(clean(last_restart_cause(progress, task)), width, "yellow")
    if mark.rank == CUT:
        rows.append(
            [Span("the host does not answer: numbers and state are from its last answer", "yellow")]
        )
    lines = ("   ".join(filter(None, parts)) for parts in (figures, use))
    return rows + [[Span(line)] for line in lines if line]


def _wrapped_rows(text: str, width: int, style: str = "") -> list[Row]:
    """Return the text, wrapped to `width` columns, in at most _MOST_ROWS rows."""
    pieces = wrap_to_columns(text, max(20, width), indent=2)
    if len(pieces) > _MOST_ROWS:
        pieces = [*pieces[: _MOST_ROWS - 1], f"{pieces[_MOST_ROWS - 1][: width - 3]}..."]
    return [[Span(piece, style)] for piece in pieces]


def _attempts_rows(frame: Frame, task: TaskProgress) -> list[Row]:
    known = frame.scene.progress.attempts_of(task.task)
    rows: list[Row] = [[Span(format_count(max(task.attempt, len(known)), "attempt"), "dim")]]
    if (older := len(known) - _MOST_ATTEMPTS) > 0:
        rows.append([Span(f"  {older} older attempts: press t for the timeline", "dim")])
    return rows + [row for each in known[-_MOST_ATTEMPTS:] for row in _attempt_rows(frame, each)]


def _attempt_rows(frame: Frame, attempt: Attempt) -> list[Row]:
    began = frame.scene.progress.started or attempt.started
    since = f"+{format_duration(attempt.started - began)}"
    lasted = format_duration((attempt.ended or frame.now) - attempt.started)
    style = "" if attempt.outcome is None else "green" if attempt.outcome == "succeeded" else "red"
    head = f"  {attempt.number:>3}  {since:>9}  {lasted:>9}  "
    text = clean(attempt.end_text or "goes on", 512)
    first, *others = _wrapped_rows(text, frame.width - len(head), style)
    return [[Span(head), *first], *([Span(" " * len(head)), *more] for more in others)]


def _plot_rows(scene: Scene, task: TaskProgress, width: int) -> list[Row]:
    used = scene.trends.used.get(task.task, {})
    trends = {
        **scene.trends.printed.get(task.task, {}),
        **{name: used[name] for name in (PACE, *USES) if name in used},
    }
    boxes = [
        partial(_plot_box, name, trend, task_style(task.task), scene.unicode)
        for name, trend in trends.items()
        if name != STEP and len(trend.times) >= 2
    ]
    return side_by_side(boxes, width) or [
        [Span("no curves yet: a curve needs two values, and there is one every 10 s", "dim")]
    ]


def _plot_box(name: str, trend: Trend, style: str, unicode: bool, width: int) -> list[Row]:
    curve = Curve(name, trend.points, style)
    return [
        [Span(clean(TITLES.get(name, name), 40), "bold")],
        *draw_plot([curve], width, _PLOT_ROWS, unit=UNITS.get(name, ""), unicode=unicode),
    ]


def side_by_side(boxes: Sequence[Callable[[int], list[Row]]], width: int) -> list[Row]:
    """Draw the boxes in two columns if there is room, else in one. Each box is a function that
    returns its rows for a given width."""
    if width < _BESIDE:
        return [row for box in boxes for row in box(width)]
    column_width = (width - 2) // 2
    drawn = [box(column_width) for box in boxes]
    pairs = zip_longest(drawn[::2], drawn[1::2], fillvalue=_NOTHING)
    lines = [line for pair in pairs for line in zip_longest(*pair, fillvalue=_NOTHING)]
    return [[*fit_row(first, column_width), Span("  "), *second] for first, second in lines]


def _plan_rows(plan: Plan, task: TaskPlan, width: int) -> list[Row]:
    """Return rows with what the plan says about the task: reasons, command and environment. Values
    of secrets are hidden."""
    host = next((each for each in plan.hosts if each.host == task.host), None)
    facts = [
        ("why here", task.why),
        ("address", task.address or "none: the task does not listen"),
        ("GPUs", f"number {', '.join(map(str, task.gpus))}" if task.gpus else "none"),
        ("on death", _AFTER_DEATH[task.on_death]),
        ("workdir", host.workdir if host else ""),
        ("command", shlex.join(task.argv)),
    ]
    rows: list[Row] = [[Span("as planned", "dim")]]
    for label, text in facts:
        rows += _labelled_rows(label, clean(text), width) if text else []
    rows += [[], [Span("environment", "dim")]]
    shown = {**dict.fromkeys(plan.secrets, "***"), **task.env}
    for name, value in sorted(shown.items()):
        secret = name in plan.secrets or _SECRET.search(name)
        rows += _labelled_rows(clean(name, 60), "***" if secret else clean(value), width)
    return rows


def _labelled_rows(label: str, text: str, width: int) -> list[Row]:
    head = f"  {label}: "
    first, *others = wrap_to_columns(head + text, max(20, width), indent=4)
    return [[Span(head, "dim"), Span(first[len(head) :])], *([Span(piece)] for piece in others)]
