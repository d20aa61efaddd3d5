"""One frame of the dashboard as rows of exact width, for any size of screen.

Pure: the same progress, view state and clock give the same rows. Only what is visible is computed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tfdeploy.model.progress import STEPS, RunProgress
from tfdeploy.model.transfers import all_of
from tfdeploy.ui.amounts import figure, in_bytes, in_seconds
from tfdeploy.ui.cells import Row, Span, fit, task_style
from tfdeploy.ui.dashboard.log_buffer import BufferedLine, LogBuffer
from tfdeploy.ui.dashboard.task_rows import columns, header_row, host_row, task_row
from tfdeploy.ui.dashboard.view_state import ViewState
from tfdeploy.ui.sanitise import clean

QUIET_S = 60.0  # a running task that is silent for longer is pointed out
_RUN_STYLES = {
    "running": "bold green",
    "succeeded": "bold green",
    "failing": "bold red",
    "failed": "bold red",
    "lost": "bold red",
}
_STEP_STYLES = {"done": "green", "begin": "bold yellow", "failed": "bold red"}
_KEYS = "q leave   up/down choose   f follow   space pause   / filter   PgUp/PgDn scroll   Esc back"


@dataclass
class Scene:
    """All that a frame shows. `quiet`: task -> seconds since its last line, by the viewer's clock."""

    progress: RunProgress
    ring: LogBuffer
    view: ViewState
    quiet: dict[str, float] = field(default_factory=dict)
    rule: str = "-"  # the line between table and log
    typed: Callable[[str], str] = str  # makes a command complete, so that it can be typed


def compose(scene: Scene, width: int, height: int, now: float) -> list[Row]:
    """Exactly `height` rows of `width` columns. `now`: UTC seconds, for the time that has passed."""
    progress = scene.progress
    head = _head(scene, now, height)
    foot = [_foot(scene)] if height >= 6 else []
    left = max(0, height - len(head) - len(foot))
    titled, ruled = height >= 10, height >= 8
    room = max(0, left - titled - ruled)
    things = len(progress.tasks) or len(progress.hosts)
    table = min(things, max(1, room // 2))
    log = max(0, room - table)
    rows = [*head, *_table(scene, width, table, titled)]
    if ruled:
        rows.append(_rule(scene, width))
    rows += _log(scene, log)
    rows = rows[: height - len(foot)]
    rows += [[] for _ in range(height - len(foot) - len(rows))]
    return [fit(row, width) for row in rows + foot]


def _head(scene: Scene, now: float, height: int) -> list[Row]:
    progress = scene.progress
    lasted = (progress.ended or now) - (progress.started or now)
    state = "failing" if progress.cause and not progress.final else progress.state
    rows: list[Row] = [
        [
            Span(state, _RUN_STYLES.get(state, "bold yellow")),
            Span(f" {in_seconds(lasted) if lasted >= 60 else f'{max(0, round(lasted))} s'}  "),
            Span(clean(progress.job), "bold"),
            Span(f"  {clean(progress.mode)}  " if progress.mode else ""),
            Span(clean(progress.run or ""), "dim"),
            Span(_counts(progress), "dim"),
            Span(_shared_rate(scene), "dim"),
        ]
    ]
    if progress.cause:
        rows += _cause(scene, height)
    elif progress.state == "starting" and height >= 8:
        rows.append(_steps(progress))
    return rows


def _cause(scene: Scene, height: int) -> list[Row]:
    """The first death in red with its last line, and where to look next."""
    progress = scene.progress
    death = progress.first_death
    row = [Span(clean(progress.cause or ""), "bold red")]
    if death and death.last_line:
        row.append(Span(f"  {clean(death.last_line, 512)}", "red"))
    if height < 10:
        return [row]
    task = f" --task {clean(death.task, 40)}" if death else ""
    return [row, [Span("look: ", "dim"), Span(scene.typed(f"tfdeploy logs {clean(progress.run or '')}{task} -n 50"), "bold")]]


def _steps(progress: RunProgress) -> Row:
    row: Row = []
    for name in STEPS:
        state = progress.steps.get(name, "")
        row.append(Span(f"{name}{'...' if state == 'begin' else ''} ", _STEP_STYLES.get(state, "dim")))
    moving = [t for host in progress.hosts.values() for t in host.transfers.values() if t.active]
    if moving:
        sent, total, rate, left_s = all_of(moving)
        text = f" {in_bytes(sent)} of {in_bytes(total)}" + (f", {in_bytes(rate)}/s" if rate else "")
        row.append(Span(text + (f", {in_seconds(left_s)} left" if left_s is not None else "")))
    return row


def _shared_rate(scene: Scene) -> str:
    """The rate of a step counter that several tasks share: it belongs to no row, so it is shown in the heading."""
    rate = scene.progress.shared_rate({task for task, quiet_s in scene.quiet.items() if quiet_s > QUIET_S})
    return "" if rate is None else f"  {figure(rate, 3)} steps/s in all"


def _counts(progress: RunProgress) -> str:
    if not progress.tasks:
        return ""
    up = sum(task.state == "running" and not progress.health(task) for task in progress.tasks.values())
    return f"  {up}/{len(progress.tasks)} running"


def _table(scene: Scene, width: int, rows: int, titled: bool) -> list[Row]:
    progress, view = scene.progress, scene.view
    shown = columns(progress, width)
    table = [header_row(shown)] if titled else []
    if not progress.tasks:
        return table + [host_row(host, shown) for host in list(progress.hosts.values())[:rows]]
    tasks = list(progress.tasks.values())
    view.tasks = [task.task for task in tasks]
    first = _first_visible(scene, rows)
    for index in range(first, min(len(tasks), first + rows)):
        task = tasks[index]
        quiet = scene.quiet.get(task.task, 0.0)
        quiet_s = quiet if quiet > QUIET_S and task.state == "running" else None
        table.append(task_row(progress, task, shown, selected=index == view.selected, quiet_s=quiet_s))
    return table


def _first_visible(scene: Scene, rows: int) -> int:
    """The first row to draw, such that the selected task is visible; none selected: the first death."""
    tasks, at = scene.view.tasks, scene.view.selected
    death = scene.progress.first_death
    if at is None and death is not None and death.task in tasks:
        at = tasks.index(death.task)
    return max(0, min((at or 0) - rows // 2, len(tasks) - rows))


def _rule(scene: Scene, width: int) -> Row:
    view, ring = scene.view, scene.ring
    words = [f"log of {clean(view.followed, 40)}" if view.followed else "log"]
    if view.filter:
        words.append(f"with '{clean(view.filter, 40)}'")
    if view.snapshot is not None:
        words.append(f"{'paused' if view.paused else 'scrolled'}, {view.unseen:,} new")
    elif ring.lines_per_s >= 1:
        words.append(f"{ring.lines_per_s:,.0f} lines/s")
    if ring.dropped:
        words.append(f"{ring.dropped:,} older lines not kept here")
    text = f"{scene.rule * 2} {', '.join(words)} "
    return [Span(text + scene.rule * max(0, width - len(text)), "dim")]


def _log(scene: Scene, rows: int) -> list[Row]:
    lines = scene.view.visible(rows)
    if not lines and scene.view.filter and rows > 0:
        kept = f"{scene.ring.kept(scene.view.followed):,} lines"
        return [[Span(f"none of the {kept} kept here has '{clean(scene.view.filter, 40)}'; Esc shows them", "dim")]]
    width = max((len(_label(line)) for line in lines), default=0)
    return [_log_row(line, min(width, 24)) for line in lines]


def _label(line: BufferedLine) -> str:
    return f"{line.task}@{line.host}" if line.host else line.task


def _log_row(line: BufferedLine, width: int) -> Row:
    label = clean(_label(line), 64)
    style = line.style or ""
    return [
        Span(label.ljust(width)[: max(width, 1)], style or task_style(line.task)),
        Span(f" | {clean(line.text, 1024)}", style),
    ]


def _foot(scene: Scene) -> Row:
    view = scene.view
    if view.typing:
        return [
            Span(f"/{clean(view.filter, 200)}", "bold"),
            Span(" ", "reverse"),
            Span("  Enter keeps the filter, Esc ends it", "dim"),
        ]
    return [Span(_KEYS, "dim")]
