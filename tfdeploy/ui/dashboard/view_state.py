"""Hold what the operator has selected in the dashboard (page, row, lines, filter, order), and
define what each key does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from tfdeploy.model.progress.run_progress import RunProgress
from tfdeploy.ui.dashboard.log_buffer import BufferedLine, LogBuffer
from tfdeploy.ui.dashboard.row_filter import Filter
from tfdeploy.ui.dashboard.row_order import SORTS, TableRow

Page = Literal["run", "task", "curves", "timeline", "help"]
# Actions during which the dashboard is not shown, because they need the terminal's normal screen.
Aside = Literal["stop", "shell", "fetch", "copy"]
# A number of screens that is larger than any log, to scroll to either end of the log.
_FAR = 1 << 20
# The fields that `copy_choices` copies.
_CHOICES = "page offset selected followed filter typing sort fold open wrap question aside"


class Question(NamedTuple):
    """An action that starts once the operator answers y. `text`: the question. `host`: the host of
    the selected row."""

    action: Aside
    text: str = ""
    host: str = ""


@dataclass(eq=False)
class ViewState:
    """What the operator has selected. Keys change these values; `compose_frame` records here what
    it has drawn."""

    ring: LogBuffer
    progress: RunProgress
    page: Page = "run"
    # The table rows that were drawn in the last frame.
    items: Sequence[TableRow] = ()
    # The task of the selected row, or None if no row is selected.
    selected: str | None = None
    # The task whose lines the log shows, or None if the log shows the lines of all tasks.
    followed: str | None = None
    typing: bool = False
    filter: str = ""
    # The parsed form of `filter`. Each frame parses it again, because tasks and states change.
    parsed: Filter = field(default_factory=Filter)
    sort: str = SORTS[0]
    # Whether equal rows are folded. If None, they are folded only if there is no room for all rows.
    fold: bool | None = None
    # The role whose tasks are never folded, or None if there is no such role.
    open: str | None = None
    wrap: bool = False
    # The lines that are shown while the log is scrolled or paused. If None, the newest lines are
    # shown.
    snapshot: list[BufferedLine] | None = None
    # How many lines the log had received when the snapshot was taken.
    snapshot_count: int = 0
    paused: bool = False
    # The visible part of the log ends before this index in `snapshot`.
    bottom: int = 0
    # How many rows the log had in the last frame.
    log_rows: int = 1
    # The first visible row of a page that is longer than the screen.
    offset: int = 0
    # How many rows the page had in the last frame.
    page_rows: int = 1
    # The question that waits for an answer.
    question: Question | None = None
    # The action that the dashboard carries out next on the normal screen, or None. During a launch,
    # an action that needs a command of tfdeploy waits here, and Esc withdraws it.
    aside: Question | None = None
    quit: bool = False

    def copy_choices(self, former: ViewState) -> None:
        """Copy the operator's choices from the view of an earlier dashboard."""
        for name in _CHOICES.split():
            setattr(self, name, getattr(former, name))

    def handle_key(self, name: str) -> None:
        if self.typing:
            self._edit_filter(name)
        elif self.question is not None:
            self._answer_question(name)
        elif self.aside is not None and name in ("esc", "q"):
            self.aside = None
        elif self.page == "help" and name not in _SCROLL_KEYS:
            self._show_page("run")
        elif self.page != "run" and name in _PAGE_KEYS:
            _PAGE_KEYS[name](self)
        elif name in _KEYS:
            _KEYS[name](self)

    def visible_lines(self, row_count: int) -> list[BufferedLine]:
        """Return the lines of the log to draw in `row_count` rows."""
        self.log_rows = max(1, row_count)
        if self.snapshot is None:
            return self.ring.tail(row_count, self.followed)
        return self.snapshot[max(0, self.bottom - row_count) : self.bottom]

    @property
    def unseen_lines(self) -> int:
        """Return how many lines have arrived since the snapshot was taken."""
        return self.ring.count - self.snapshot_count

    @property
    def chosen_row(self) -> TableRow | None:
        """Return the row of the table that contains the selected task; None if no row does."""
        return next((item for item in self.items if self.selected in item.tasks), None)

    def _scroll_log(self, lines_down: int) -> None:
        """Scroll the log by `lines_down`, up if negative. At the lower end, the log follows
        new lines again, unless it is paused."""
        if self.snapshot is None and lines_down >= 0:
            return
        shown = self._take_snapshot() if self.snapshot is None else self.snapshot
        low = min(self.log_rows, len(shown))
        self.bottom = max(low, min(len(shown), self.bottom + lines_down))
        if self.bottom == len(shown) and not self.paused:
            self.snapshot = None

    def refresh_log(self) -> None:
        """Apply a change of the filter or of the followed task to the log. If the log is paused,
        take a new snapshot, else show the newest lines."""
        self.snapshot = None
        if self.paused:
            self._take_snapshot()

    def _take_snapshot(self) -> list[BufferedLine]:
        self.snapshot = lines = self.ring.all_lines(self.followed)
        self.bottom, self.snapshot_count = len(lines), self.ring.count
        return lines

    def _edit_filter(self, name: str) -> None:
        self.typing = name not in ("enter", "esc")
        if name in ("esc", "clear"):
            self.filter = ""
        elif name == "backspace":
            self.filter = self.filter[:-1]
        elif len(name) == 1:
            self.filter += name

    def _answer_question(self, name: str) -> None:
        if name in ("y", "Y"):
            self.aside = self.question
        self.question = None

    def _ask_before_action(self, action: Aside) -> None:
        run, item = self.progress.run or "", self.chosen_row
        host = self.progress.tasks[item.tasks[0]].host if item else ""
        questions = {
            "shell": f"open a shell on {host}?",
            "stop": f"stop {run} on all its hosts?",
            "fetch": f"download the logs of {run} to this machine?",
        }
        if host or action != "shell":
            self.question = Question(action, questions[action], host)

    def _request_log_copy(self) -> None:
        self.aside = self.aside or Question("copy")

    def _move_selection(self, step: int) -> None:
        if not self.items:
            return
        index = self.items.index(self.chosen_row) if self.chosen_row else min(0, -step)
        self.selected = self.items[max(0, min(len(self.items) - 1, index + step))].tasks[0]
        if self.followed is not None:
            self._follow(self.selected)

    def _toggle_follow(self) -> None:
        if self.followed is None and self.items:
            self.selected = self.selected or self.items[0].tasks[0]
            self._follow(self.selected)
        elif self.followed is not None:
            self._follow(None)

    def _follow(self, task: str | None) -> None:
        self.followed = task
        self.refresh_log()

    def _open_or_unfold(self) -> None:
        """Open the page of the selected task. If the selected row is folded, unfold the tasks of
        its role."""
        if not self.items:
            return
        item = self.chosen_row or self.items[0]
        self.selected = item.tasks[0]
        if item.is_folded:
            self.open = item.tasks[0].partition(":")[0]
        else:
            self._show_page("task")

    def _show_page(self, page: Page) -> None:
        self.page, self.offset = page, 0

    def _scroll_page(self, rows_down: int) -> None:
        # The next frame limits the offset to the length of the page.
        self.offset = max(0, self.offset + rows_down)

    def _select_or_scroll(self, rows: int) -> None:
        """On the first page, select another row of the table; on any other page, scroll the
        page."""
        if self.page == "run":
            self._move_selection(rows)
        else:
            self._scroll_page(rows)

    def _scroll_screens(self, screens: int) -> None:
        """On the first page, scroll the log; on any other page, scroll the page."""
        if self.page == "run":
            self._scroll_log(screens * self.log_rows)
        else:
            self._scroll_page(screens * self.page_rows)

    def _toggle_pause(self) -> None:
        self.paused = not self.paused
        if not self.paused or self.snapshot is None:
            self.refresh_log()

    def _reset_view(self) -> None:
        """Clear the filter and the selection, and show the newest lines of all tasks."""
        self.filter, self.followed, self.selected, self.open = "", None, None, None
        self.paused, self.snapshot = False, None

    def _use_next_order(self) -> None:
        self.sort = SORTS[(SORTS.index(self.sort) + 1) % len(SORTS)]

    def _toggle_fold_all(self) -> None:
        if self.fold is None:
            self.fold = any(item.is_folded for item in self.items)
        self.fold, self.open = not self.fold, None

    def _toggle_wrap(self) -> None:
        self.wrap = not self.wrap

    def _start_typing_filter(self) -> None:
        self.typing = True

    def _request_quit(self) -> None:
        self.quit = True


_KEYS: dict[str, Callable[[ViewState], None]] = {
    "q": ViewState._request_quit,
    **dict.fromkeys(("up", "k"), lambda state: state._select_or_scroll(-1)),
    **dict.fromkeys(("down", "j"), lambda state: state._select_or_scroll(1)),
    "pgup": lambda state: state._scroll_screens(-1),
    "pgdn": lambda state: state._scroll_screens(1),
    "home": lambda state: state._scroll_screens(-_FAR),
    "end": lambda state: state._scroll_screens(_FAR),
    " ": ViewState._toggle_pause,
    "f": ViewState._toggle_follow,
    "enter": ViewState._open_or_unfold,
    "/": ViewState._start_typing_filter,
    "s": ViewState._use_next_order,
    "e": ViewState._toggle_fold_all,
    "w": ViewState._toggle_wrap,
    "y": ViewState._request_log_copy,
    "c": lambda state: state._show_page("curves"),
    "t": lambda state: state._show_page("timeline"),
    "?": lambda state: state._show_page("help"),
    "x": lambda state: state._ask_before_action("stop"),
    "o": lambda state: state._ask_before_action("shell"),
    "d": lambda state: state._ask_before_action("fetch"),
    "esc": ViewState._reset_view,
}
_SCROLL_KEYS = ("up", "down", "pgup", "pgdn", "home", "end")
_PAGE_KEYS: dict[str, Callable[[ViewState], None]] = {
    " ": lambda state: state._scroll_screens(1),
    **dict.fromkeys(("enter", "backspace", "esc"), lambda state: state._show_page("run")),
}
