"""What the operator has selected in the dashboard: page, row, lines, filter, order; and what each key changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from tfdeploy.ui.dashboard.log_buffer import BufferedLine, LogBuffer
from tfdeploy.ui.dashboard.row_filter import Filter
from tfdeploy.ui.dashboard.row_order import SORTS, Item

Page = Literal["run", "task", "curves", "timeline", "help"]
Aside = Literal["stop", "shell", "fetch", "copy"]  # what is done on the ordinary screen
_FAR = 1 << 20  # screens


@dataclass(frozen=True)
class Question:
    """It waits for y. `of`: the task or host that it is about; "" for the run."""

    aside: Aside
    words: str
    of: str = ""


class ViewState:
    """Changed by keys only. `snapshot`: the lines that are shown while scrolled or paused (None: live)."""

    def __init__(self, ring: LogBuffer) -> None:
        self.ring = ring
        self.page: Page = "run"
        self.items: Sequence[Item] = ()  # as last drawn
        self.selected: str | None = None  # a task
        self.followed: str | None = None
        self.typing = False
        self.filter = ""
        self.parsed = Filter()  # the filter, as it was read with the tasks that were known then
        self.sort = SORTS[0]
        self.fold: bool | None = None  # None: where there is no room
        self.open: str | None = None  # a role whose tasks are not folded
        self.wrap = False
        self.snapshot: list[BufferedLine] | None = None
        self.paused = False
        self.bottom = 0  # how many lines of the snapshot are above the lower edge of the log
        self.log_rows = 1  # as last drawn
        self.offset = 0  # of a page that is longer than the screen
        self.page_rows = 1  # as last drawn
        self.question: Question | None = None
        self.aside: Question | None = None  # what is to be done now
        self.acts = False  # whether there is somebody to do it
        self.host_of: Callable[[str], str] = str  # task -> its host
        self.run = ""
        self.quit = False

    def go_on_from(self, other: ViewState) -> None:
        """Shows what the other one was made to show."""
        self.page, self.offset, self.selected, self.followed = other.page, other.offset, other.selected, other.followed
        self.filter, self.typing = other.filter, other.typing
        self.sort, self.fold, self.open, self.wrap = other.sort, other.fold, other.open, other.wrap

    def key(self, name: str) -> None:
        if self.typing:
            self._type(name)
        elif self.question is not None:
            self._answer(name)
        elif self.page == "help" and name not in _SCROLL_KEYS:
            self.page, self.offset = "run", 0
            self.quit = False
        elif self.page != "run" and name in _PAGE_KEYS:
            _PAGE_KEYS[name](self)
        elif name in _KEYS:
            _KEYS[name](self)

    def visible(self, rows: int) -> list[BufferedLine]:
        """The lines of the log to be drawn in `rows` rows."""
        self.log_rows = max(1, rows)
        if self.snapshot is None:
            return self.ring.tail(rows, self.followed) if rows > 0 else []
        return self.snapshot[max(0, self.bottom - rows) : self.bottom] if rows > 0 else []

    @property
    def unseen(self) -> int:
        """Lines that came since the snapshot."""
        return self.ring.count - self._snapshot_count if self.snapshot is not None else 0

    @property
    def chosen(self) -> Item | None:
        """The row that has the selected task."""
        return next((item for item in self.items if self.selected in item.tasks), None)

    def scroll(self, lines: int) -> None:
        """Up (negative) or down; live again at the lower end, unless paused."""
        if self.snapshot is None:
            if lines >= 0:
                return
            self._take_snapshot()
        assert self.snapshot is not None
        low = min(self.log_rows, len(self.snapshot))
        self.bottom = max(low, min(len(self.snapshot), self.bottom + lines))
        if self.bottom == len(self.snapshot) and not self.paused:
            self.snapshot = None

    def refresh(self) -> None:
        """After a change of filter or task: a new snapshot while paused, else live."""
        if self.paused:
            self._take_snapshot()
        else:
            self.snapshot = None

    def _take_snapshot(self) -> None:
        self.snapshot = self.ring.everything(self.followed)
        self.bottom = len(self.snapshot)
        self._snapshot_count = self.ring.count

    def _type(self, name: str) -> None:
        if name in ("enter", "esc"):
            self.typing = False
            text = self.filter if name == "enter" else ""
        elif name == "backspace":
            text = self.filter[:-1]
        else:
            text = "" if name == "clear" else self.filter + name if len(name) == 1 else self.filter
        self.filter = text

    def _answer(self, name: str) -> None:
        if name in ("y", "Y"):
            self.aside = self.question
        self.question = None

    def _ask(self, aside: Aside) -> None:
        if not self.acts:
            return
        item = self.chosen
        if aside == "shell":
            if item is not None:
                host = self.host_of(item.tasks[0])
                self.question = Question(aside, f"open a shell on {host}?", host)
        elif aside == "stop":
            self.question = Question(aside, f"stop {self.run} on all its hosts?")
        else:
            self.question = Question(aside, f"download the logs of {self.run} to this machine?")

    def _copy(self) -> None:
        self.aside = Question("copy", "")

    def _move(self, step: int) -> None:
        if not self.items:
            return
        at = next((index for index, item in enumerate(self.items) if self.selected in item.tasks), None)
        at = (-1 if step > 0 else 0) if at is None else at
        self.selected = self.items[max(0, min(len(self.items) - 1, at + step))].tasks[0]
        if self.followed is not None:
            self._follow(self.selected)

    def _toggle_follow(self) -> None:
        if self.followed is not None:
            self._follow(None)
        elif self.items:
            self.selected = self.selected or self.items[0].tasks[0]
            self._follow(self.selected)

    def _follow(self, task: str | None) -> None:
        self.followed = task
        self.refresh()

    def _enter(self) -> None:
        """Opens the page of the chosen task, or a folded row."""
        if not self.items:
            return
        item = self.chosen or self.items[0]
        self.selected = item.tasks[0]
        if item.folded:
            self.open = item.tasks[0].partition(":")[0]
        else:
            self._show("task")

    def _show(self, page: Page) -> None:
        self.page, self.offset = page, 0

    def _shift(self, rows: int) -> None:
        self.offset = max(0, self.offset + rows)  # the frame keeps it within the page

    def _step(self, rows: int) -> None:
        """Choose another row of the table, or scroll a page."""
        if self.page == "run":
            self._move(rows)
        else:
            self._shift(rows)

    def _turn(self, screens: int) -> None:
        """Scroll the log, or a page."""
        if self.page == "run":
            self.scroll(screens * self.log_rows)
        else:
            self._shift(screens * self.page_rows)

    def _pause(self) -> None:
        self.paused = not self.paused
        if self.paused:
            if self.snapshot is None:
                self._take_snapshot()
        else:
            self.snapshot = None

    def _escape(self) -> None:
        """Back to all lines of all tasks, live."""
        self.filter, self.followed, self.selected, self.open = "", None, None, None
        self.paused, self.snapshot = False, None

    def _sort(self) -> None:
        self.sort = SORTS[(SORTS.index(self.sort) + 1) % len(SORTS)]

    def _fold(self) -> None:
        folded = self.fold if self.fold is not None else any(item.folded for item in self.items)
        self.fold, self.open = not folded, None

    def _wrap(self) -> None:
        self.wrap = not self.wrap

    def _start_filter(self) -> None:
        self.typing = True

    def _quit(self) -> None:
        self.quit = True

    _snapshot_count = 0


_KEYS: dict[str, Callable[[ViewState], None]] = {
    "q": ViewState._quit,
    **dict.fromkeys(("up", "k"), lambda state: state._step(-1)),
    **dict.fromkeys(("down", "j"), lambda state: state._step(1)),
    "pgup": lambda state: state._turn(-1),
    "pgdn": lambda state: state._turn(1),
    "home": lambda state: state._turn(-_FAR),
    "end": lambda state: state._turn(_FAR),
    " ": ViewState._pause,
    "f": ViewState._toggle_follow,
    "enter": ViewState._enter,
    "/": ViewState._start_filter,
    "s": ViewState._sort,
    "e": ViewState._fold,
    "w": ViewState._wrap,
    "y": ViewState._copy,
    "c": lambda state: state._show("curves"),
    "t": lambda state: state._show("timeline"),
    "?": lambda state: state._show("help"),
    "x": lambda state: state._ask("stop"),
    "o": lambda state: state._ask("shell"),
    "d": lambda state: state._ask("fetch"),
    "esc": ViewState._escape,
}
_SCROLL_KEYS = ("up", "down", "pgup", "pgdn", "home", "end")
_PAGE_KEYS: dict[str, Callable[[ViewState], None]] = {
    " ": lambda state: state._turn(1),
    **dict.fromkeys(("enter", "backspace", "esc"), lambda state: state._show("run")),
}
