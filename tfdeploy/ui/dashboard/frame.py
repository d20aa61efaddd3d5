"""One frame of the dashboard as rows of exact width, for any size of screen.

Pure: the same progress, view state and clock give the same rows. Only what is visible is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tfdeploy.model.folding import fold_names
from tfdeploy.model.pace import slow_tasks
from tfdeploy.model.progress import RunProgress
from tfdeploy.model.trends import Trends
from tfdeploy.model.trouble import Mark, marks
from tfdeploy.ui.cells import Row, Span, fit, task_style, wrap
from tfdeploy.ui.dashboard.curves_page import curves_page
from tfdeploy.ui.dashboard.happenings import Happening, Happenings
from tfdeploy.ui.dashboard.header import cause_rows, head_row, steps_row
from tfdeploy.ui.dashboard.help_page import help_page
from tfdeploy.ui.dashboard.log_buffer import BufferedLine, LogBuffer
from tfdeploy.ui.dashboard.row_filter import parse, states_of
from tfdeploy.ui.dashboard.row_order import Item, items
from tfdeploy.ui.dashboard.task_page import LOG_ROWS, task_page
from tfdeploy.ui.dashboard.task_rows import Table, columns, header_row, host_row, item_row
from tfdeploy.ui.dashboard.timeline_page import happening_row, in_order, timeline_page
from tfdeploy.ui.dashboard.view_state import ViewState
from tfdeploy.ui.sanitise import clean
from tfdeploy.ui.tables import cells

LOG_LEAST = 6  # rows of the log, where the table could take more
QUIET_S = 60.0  # a running task that is silent for longer is pointed out
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
_PAGE_KEYS = ("q leave", "Esc back", "up/down PgUp/PgDn scroll", "/ filter", "c curves", "t timeline", "? help")


@dataclass
class Scene:
    """All that a frame shows. `quiet`: task -> seconds since its last line, by the viewer's clock."""

    progress: RunProgress
    ring: LogBuffer
    view: ViewState
    trends: Trends = field(default_factory=Trends)
    happenings: Happenings = field(default_factory=Happenings)
    quiet: dict[str, float] = field(default_factory=dict)
    unicode: bool = False
    typed: Callable[[str], str] = str  # makes a command complete, so that it can be typed

    @property
    def silent(self) -> dict[str, float]:
        """Running tasks that have been quiet for long."""
        tasks = self.progress.tasks
        return {
            name: quiet
            for name, quiet in self.quiet.items()
            if quiet > QUIET_S and name in tasks and tasks[name].state == "running"
        }


def compose(scene: Scene, width: int, height: int, now: float) -> list[Row]:
    """Exactly `height` rows of `width` columns. `now`: UTC seconds, for the time that has passed."""
    progress, view = scene.progress, scene.view
    found = marks(progress, slow_tasks(progress, scene.trends), now)
    shown = _take_filter(scene, found)
    head = _head(scene, found, now, width, height)
    foot = [_foot(scene, width)] if height >= 6 else []
    left = max(0, height - len(head) - len(foot))
    if view.page == "run":
        body = _run_page(scene, found, shown, width, left, now)
    else:
        body = _other_page(scene, found, shown, width, left, now)
    rows = [*head, *body][: height - len(foot)]
    rows += [[] for _ in range(height - len(foot) - len(rows))]
    return [fit(row, width) for row in rows + foot]


def _take_filter(scene: Scene, found: Mapping[str, Mark]) -> list[str]:
    """The tasks that pass the filter; the log shows theirs alone."""
    progress, view, ring = scene.progress, scene.view, scene.ring
    view.host_of = lambda task: progress.tasks[task].host
    view.run = progress.run or ""
    states = {name: states_of(mark, progress, name) for name, mark in found.items()} if view.filter else {}
    view.parsed = parsed = parse(view.filter, progress, {state for each in states.values() for state in each})
    shown = list(progress.tasks)
    if parsed.of_tasks:
        shown = [name for name in shown if parsed.passes(name, states[name])]
    if ring.filter(view.filter, parsed.finds, frozenset(shown) if parsed.of_tasks else None):
        view.refresh()
    return shown


def _head(scene: Scene, found: Mapping[str, Mark], now: float, width: int, height: int) -> list[Row]:
    progress = scene.progress
    rows = [head_row(progress, scene.trends, found, scene.silent, now, width)]
    if progress.cause:
        rows += cause_rows(progress, height, scene.typed)
    elif progress.state == "starting" and height >= 8:
        rows.append(steps_row(progress))
    return rows


def _run_page(scene: Scene, found: Mapping[str, Mark], shown: list[str], width: int, left: int, now: float) -> list[Row]:
    """The table, the newest events, the log."""
    progress, view = scene.progress, scene.view
    titled, ruled = left >= 8, left >= 6
    strip = _strip(scene, 4 if left >= 26 else 3 if left >= 20 else 2 if left >= 16 else 0)
    room = max(0, left - titled - ruled - (len(strip) + 1 if strip else 0))
    most = max(1, room // 2, room - LOG_LEAST)
    table = Table(progress, scene.trends, scene.silent, scene.unicode)
    if not progress.tasks:
        columns_ = columns(table, (), width)
        rows = [header_row(columns_)] if titled else []
        rows += [host_row(host, columns_) for host in list(progress.hosts.values())[: max(most, 1)]]
    else:
        view.items = items(progress, found, shown, most, sort=view.sort, fold=view.fold, open_=view.open)
        rows = _table(scene, table, width, most, titled)
    if strip:
        rows += [_rule(scene, ["events"], width), *strip]
    if ruled:
        rows.append(_rule(scene, _log_words(scene), width))
    return rows + _log(scene, max(0, left - len(rows)), width)


def _table(scene: Scene, table: Table, width: int, most: int, titled: bool) -> list[Row]:
    view = scene.view
    drawn = view.items
    if not drawn:
        return [[Span(f"no task is '{clean(view.filter, 40)}'; Esc shows all", "dim")]]
    first = 0
    room = min(len(drawn), most)
    if len(drawn) > most:
        room = max(1, most - 1) if most > 1 else most
        at = next((index for index, item in enumerate(drawn) if view.selected in item.tasks), None)
        first = 0 if at is None else max(0, min(at - room // 2, len(drawn) - room))
    seen = drawn[first : first + room]
    shown = columns(table, seen, width)
    rows = [header_row(shown, sort={"pace": "steps/s"}.get(view.sort, view.sort))] if titled else []
    rows += [item_row(table, item, shown, selected=view.selected in item.tasks, width=width) for item in seen]
    if room < len(drawn) and room < most:
        rows.append(_more([item for at, item in enumerate(drawn) if not first <= at < first + room]))
    return rows


def _more(left_out: list[Item]) -> Row:
    tasks = [task for item in left_out for task in item.tasks]
    bad = [task for item in left_out if item.mark.trouble for task in item.tasks]
    row = [Span(f"+{len(tasks)} more", "dim")]
    return [*row, Span(f", of these in trouble: {clean(fold_names(bad), 200)}", "bold yellow")] if bad else row


def _strip(scene: Scene, rows: int) -> list[Row]:
    """The first cause, and the newest events."""
    passing = _passing(scene) if rows else []
    began = scene.progress.started or 0.0
    cause = [each for each in passing if each.first]
    newest = [each for each in passing if not each.first]
    others = rows - len(cause)
    kept = [*cause, *(newest[-others:] if others > 0 else [])][: max(0, rows)]
    return [happening_row(each, began) for each in kept]


def _passing(scene: Scene) -> list[Happening]:
    parsed = scene.view.parsed
    finds, chosen = parsed.finds, scene.ring.chosen
    return [
        each
        for each in in_order(scene.happenings)
        if (finds is None or finds(each.words)) and (chosen is None or not chosen.isdisjoint(each.names))
    ]


def _other_page(scene: Scene, found: Mapping[str, Mark], shown: list[str], width: int, left: int, now: float) -> list[Row]:
    """A page that may be longer than the screen."""
    progress, view = scene.progress, scene.view
    name = view.selected if view.selected in progress.tasks else next(iter(progress.tasks), None)
    if view.page == "help" or (view.page == "task" and name is None):
        rows = help_page(width)
    elif view.page == "task" and name is not None:
        log = scene.ring.last_of(name, LOG_ROWS)
        rows = task_page(
            progress, scene.trends, name, found[name], log, width=width, unicode=scene.unicode, now=now, typed=scene.typed
        )
    elif view.page == "curves":
        worst = sorted(shown, key=lambda name: found[name].rank)
        rows = curves_page(progress, scene.trends, worst, width=width, height=left, unicode=scene.unicode)
    else:
        rows = timeline_page(progress, found, _passing(scene), shown, width=width, height=left, unicode=scene.unicode, now=now)
    view.page_rows = max(1, left - 1)
    view.offset = max(0, min(view.offset, len(rows) - left))
    below = len(rows) - view.offset - left
    if below > 0 and left > 1:
        return [*rows[view.offset : view.offset + left - 1], [Span(f"... {below + 1} more rows: PgDn", "dim")]]
    return rows[view.offset : view.offset + left]


def _rule(scene: Scene, words: list[str], width: int) -> Row:
    line = "─" if scene.unicode else "-"
    text = f"{line * 2} {', '.join(words)} "
    return [Span(text + line * max(0, width - cells(text)), "dim")]


def _log_words(scene: Scene) -> list[str]:
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
    return words


def _log(scene: Scene, rows: int, width: int) -> list[Row]:
    lines = scene.view.visible(rows)
    if not lines and scene.view.filter and rows > 0:
        kept = f"{scene.ring.kept(scene.view.followed):,} lines"
        return [[Span(f"none of the {kept} kept here has '{clean(scene.view.filter, 40)}'; Esc shows them", "dim")]]
    label = min(24, max((len(_label(line)) for line in lines), default=0))
    drawn = [row for line in lines for row in _log_rows(line, label, width if scene.view.wrap else None)]
    return drawn[max(0, len(drawn) - rows) :]


def _label(line: BufferedLine) -> str:
    return f"{line.task}@{line.host}" if line.host else line.task


def _log_rows(line: BufferedLine, label: int, width: int | None) -> list[Row]:
    """One row, or as many as the text needs in `width` columns."""
    name = clean(_label(line), 64).ljust(label)[: max(label, 1)]
    style = line.style or ""
    head = Span(name, style or task_style(line.task))
    if width is None:
        return [[head, Span(f" | {clean(line.text, 1024)}", style)]]
    pieces = wrap(clean(line.text), max(8, width - label - 3))
    return [[head if not at else Span(" " * len(name)), Span(f" | {piece}", style)] for at, piece in enumerate(pieces)]


def _foot(scene: Scene, width: int) -> Row:
    view = scene.view
    if view.typing:
        return [
            Span(f"/{clean(view.filter, 200)}", "bold"),
            Span(" ", "reverse"),
            Span("  Enter keeps the filter, Esc ends it; worker @n3 stalled !stalled or words", "dim"),
        ]
    if view.question is not None:
        return [Span(f"{clean(view.question.words, 200)} ", "bold yellow"), Span("y yes, any other key no", "bold")]
    if view.page == "help":
        return [Span("PgUp PgDn scroll, any other key goes back", "dim")]
    words = ""
    for key in _KEYS if view.page == "run" else _PAGE_KEYS:
        longer = f"{words}   {key}" if words else key
        if cells(longer) > width and words:
            break
        words = longer
    return [Span(words, "dim")]
