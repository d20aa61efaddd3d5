"""What the operator has selected in the dashboard: task, lines, filter; and what each key changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tfdeploy.ui.dashboard.log_buffer import BufferedLine, LogBuffer


class ViewState:
    """Changed by keys only. `snapshot`: the lines that are shown while scrolled or paused (None: live)."""

    def __init__(self, ring: LogBuffer) -> None:
        self.ring = ring
        self.tasks: Sequence[str] = ()
        self.selected: int | None = None
        self.followed: str | None = None
        self.typing = False
        self.filter = ""
        self.snapshot: list[BufferedLine] | None = None
        self.paused = False
        self.bottom = 0  # how many lines of the snapshot are above the lower edge of the log
        self.log_rows = 1  # as last drawn
        self.quit = False

    def key(self, name: str) -> None:
        if self.typing:
            self._type(name)
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

    def _take_snapshot(self) -> None:
        self.snapshot = self.ring.everything(self.followed)
        self.bottom = len(self.snapshot)
        self._snapshot_count = self.ring.count

    def _refresh(self) -> None:
        """After a change of filter or task: a new snapshot while paused, else live."""
        if self.paused:
            self._take_snapshot()
        else:
            self.snapshot = None

    def _type(self, name: str) -> None:
        if name in ("enter", "esc"):
            self.typing = False
            text = self.filter if name == "enter" else ""
        elif name == "backspace":
            text = self.filter[:-1]
        else:
            text = "" if name == "clear" else self.filter + name if len(name) == 1 else self.filter
        if text != self.filter:
            self.filter = text
            self.ring.filter(text)
            self._refresh()

    def _move(self, step: int) -> None:
        if not self.tasks:
            return
        at = -1 if self.selected is None and step > 0 else self.selected or 0
        self.selected = max(0, min(len(self.tasks) - 1, at + step))
        if self.followed is not None:
            self._follow(self.tasks[self.selected])

    def _toggle_follow(self) -> None:
        if self.followed is not None:
            self._follow(None)
        elif self.tasks:
            self.selected = self.selected or 0
            self._follow(self.tasks[self.selected])

    def _follow(self, task: str | None) -> None:
        self.followed = task
        self._refresh()

    def _pause(self) -> None:
        self.paused = not self.paused
        if self.paused:
            if self.snapshot is None:
                self._take_snapshot()
        else:
            self.snapshot = None

    def _escape(self) -> None:
        """Back to all lines of all tasks, live."""
        self.filter, self.followed, self.selected = "", None, None
        self.paused, self.snapshot = False, None
        self.ring.filter("")

    def _start_filter(self) -> None:
        self.typing = True

    def _quit(self) -> None:
        self.quit = True

    _snapshot_count = 0


_KEYS: dict[str, Callable[[ViewState], None]] = {
    "q": ViewState._quit,
    "up": lambda state: state._move(-1),
    "down": lambda state: state._move(1),
    "k": lambda state: state._move(-1),
    "j": lambda state: state._move(1),
    "pgup": lambda state: state.scroll(-state.log_rows),
    "pgdn": lambda state: state.scroll(state.log_rows),
    "home": lambda state: state.scroll(-(1 << 30)),
    "end": lambda state: state.scroll(1 << 30),
    " ": ViewState._pause,
    "f": ViewState._toggle_follow,
    "enter": ViewState._toggle_follow,
    "/": ViewState._start_filter,
    "esc": ViewState._escape,
}
