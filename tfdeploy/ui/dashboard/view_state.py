"""What the operator looks at in the dashboard: which task, which lines, which filter; and what a key does to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tfdeploy.ui.dashboard.log_buffer import LogRing, Shown


class ViewState:
    """Changed by keys only. `snapshot`: the lines that scrolling or a pause holds still (None: live)."""

    def __init__(self, ring: LogRing) -> None:
        self.ring = ring
        self.tasks: Sequence[str] = ()
        self.selected: int | None = None
        self.followed: str | None = None
        self.typing = False
        self.filter = ""
        self.snapshot: list[Shown] | None = None
        self.paused = False
        self.bottom = 0  # how many lines of the snapshot lie above the lower edge
        self.log_rows = 1  # as last drawn
        self.left = False

    def key(self, name: str) -> None:
        if self.typing:
            self._type(name)
        elif name in _KEYS:
            _KEYS[name](self)

    def visible(self, rows: int) -> list[Shown]:
        """The lines of the log to be drawn in `rows` rows."""
        self.log_rows = max(1, rows)
        if self.snapshot is None:
            return self.ring.tail(rows, self.followed) if rows > 0 else []
        return self.snapshot[max(0, self.bottom - rows) : self.bottom] if rows > 0 else []

    @property
    def unseen(self) -> int:
        """Lines that came since the log was held still."""
        return self.ring.count - self._held_at if self.snapshot is not None else 0

    def scroll(self, lines: int) -> None:
        """Up (negative) or down; live again at the lower end, unless paused."""
        if self.snapshot is None:
            if lines >= 0:
                return
            self._hold()
        assert self.snapshot is not None
        low = min(self.log_rows, len(self.snapshot))
        self.bottom = max(low, min(len(self.snapshot), self.bottom + lines))
        if self.bottom == len(self.snapshot) and not self.paused:
            self.snapshot = None

    def _hold(self) -> None:
        self.snapshot = self.ring.everything(self.followed)
        self.bottom = len(self.snapshot)
        self._held_at = self.ring.count

    def _again(self) -> None:
        """What is shown changed its meaning: hold anew, or go on live."""
        if self.paused:
            self._hold()
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
            self._again()

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
        self._again()

    def _pause(self) -> None:
        self.paused = not self.paused
        if self.paused:
            if self.snapshot is None:
                self._hold()
        else:
            self.snapshot = None

    def _escape(self) -> None:
        """Back to all lines of all tasks, live."""
        self.filter, self.followed, self.selected = "", None, None
        self.paused, self.snapshot = False, None
        self.ring.filter("")

    def _ask(self) -> None:
        self.typing = True

    def _quit(self) -> None:
        self.left = True

    _held_at = 0


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
    "/": ViewState._ask,
    "esc": ViewState._escape,
}
