"""Keep what has happened to the run: starts, deaths, restarts, stalls, cuts. Equal events of
several tasks are one. Not thread-safe."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field

from tfdeploy.model.events import Event
from tfdeploy.model.text.folding import fold_names
from tfdeploy.ui.plain import event_words

KEPT = 500
_TOGETHER_S = 10.0  # equal ones within that are one
_PID = re.compile(r" pid \d+")
_LOOKED_AT = 8  # of the newest ones


@dataclass
class Happening:
    """One or more equal events. `time`: UTC seconds of the first. `names`: tasks or hosts; none:
    the run, or tfdeploy. `kind`: what they have in common."""

    time: float
    kind: str
    text: str
    style: str
    names: dict[str, None] = field(default_factory=dict)
    first: bool = False  # the death that is the cause

    @property
    def folded_text(self) -> str:
        """Return the text, with all names in front if there are several."""
        if len(self.names) < 2:
            return self.text
        return f"{fold_names(self.names)} {self.kind}"


class Happenings:
    """The newest KEPT, and the first death however old."""

    def __init__(self) -> None:
        self.all: deque[Happening] = deque(maxlen=KEPT)
        self.cause: Happening | None = None
        self._states: dict[str, str] = {}

    def add(self, event: Event) -> tuple[str, str]:
        """Return the text of the event and its style; ("", "") if it is not worth one."""
        text, style = event_words(event)
        if not text or event.kind == "step":
            return text, style
        name, kind = self._kind(event, text)
        if name:
            if self._states.get(name) == text:
                return text, style  # told again, as after a lost connection
            self._states[name] = text
        for known in (
            [self.all[-at] for at in range(1, min(_LOOKED_AT, len(self.all)) + 1)] if name else ()
        ):
            if (
                known.kind == kind
                and known.style == style
                and abs(event.time - known.time) <= _TOGETHER_S
            ):
                known.names[name] = None
                return text, style
        happening = Happening(event.time, kind, text, style, {name: None} if name else {})
        self.all.append(happening)
        if style == "red" and event.kind == "task" and self.cause is None:
            self.cause = happening
            happening.first = True
        return text, style

    @property
    def in_order(self) -> list[Happening]:
        """Return the cause, then the others, the newest last."""
        causes = [self.cause] if self.cause else []
        return [*causes, *(each for each in self.all if each is not self.cause)]

    def add_past(self, event: Event) -> None:
        """Add what happened before anybody watched, at its time. It is never the cause, because the
        run goes on."""
        text, style = event_words(event)
        name, kind = self._kind(event, text)
        past = Happening(event.time, kind, text, style, {name: None} if name else {})
        self.all = deque(sorted((past, *self.all), key=lambda each: each.time), maxlen=KEPT)

    def forget_cause(self) -> None:
        """Note that the run goes on: its first death was not the cause."""
        if self.cause is not None:
            self.cause.first = False
        self.cause = None

    def _kind(self, event: Event, text: str) -> tuple[str, str]:
        """Return which task or host it is about, and what: equal for all with the same event."""
        if event.kind == "task" and event.task:
            return event.task, _PID.sub("", text.partition(" ")[2])
        if event.kind in ("host", "transfer") and event.host:
            return event.host, text.partition("] ")[2]
        return "", ""
