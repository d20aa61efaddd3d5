"""Keep the history of a run: starts, deaths, restarts, stalls, lost connections. Equal events of
several tasks become one entry. The classes are not thread-safe."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field

from tfdeploy.model.events import Event
from tfdeploy.model.text.folding import fold_names
from tfdeploy.ui.plain import event_words

# The maximum number of entries that are kept.
KEPT = 500
# Equal events within this many seconds become one entry.
_TOGETHER_S = 10.0
_PID = re.compile(r" pid \d+")
# The number of newest entries with which a new event is compared.
_LOOKED_AT = 8


@dataclass
class Happening:
    """One or more equal events. `time`: UTC seconds of the first event. `kind`: the text that the
    events share. `names`: the tasks or hosts of the events; empty if the event concerns the whole
    run."""

    time: float
    kind: str
    text: str
    style: str
    names: dict[str, None] = field(default_factory=dict)
    # True for the death of a task that is the cause of the run's failure.
    first: bool = False

    @property
    def folded_text(self) -> str:
        """Return the text of the entry. If several tasks or hosts have the event, return their
        names and the shared text."""
        if len(self.names) < 2:
            return self.text
        return f"{fold_names(self.names)} {self.kind}"


class Happenings:
    """The newest KEPT entries of the run's history. The cause of the run's failure is kept too,
    however old it is."""

    def __init__(self) -> None:
        self.all: deque[Happening] = deque(maxlen=KEPT)
        self.cause: Happening | None = None
        self._states: dict[str, str] = {}

    def add(self, event: Event) -> tuple[str, str]:
        """Add the event to the history. Return the text and style of the event; ("", "") for an
        event that is not shown."""
        text, style = event_words(event)
        if not text or event.kind == "step":
            return text, style
        name, kind = self._kind(event, text)
        if name:
            if self._states.get(name) == text:
                # After a lost connection, hosts report the state of their tasks again, even if it
                # has not changed.
                return text, style
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
        """Return the cause of the run's failure, then all other entries, the newest last."""
        causes = [self.cause] if self.cause else []
        return [*causes, *(each for each in self.all if each is not self.cause)]

    def add_past(self, event: Event) -> None:
        """Add an event from before the dashboard started, at its position in time. Such an event is
        never the cause of the failure, because the run has continued after the event."""
        text, style = event_words(event)
        name, kind = self._kind(event, text)
        past = Happening(event.time, kind, text, style, {name: None} if name else {})
        self.all = deque(sorted((past, *self.all), key=lambda each: each.time), maxlen=KEPT)

    def forget_cause(self) -> None:
        """Forget the cause: the run continues, so the first death of a task was not the cause of a
        failure."""
        if self.cause is not None:
            self.cause.first = False
        self.cause = None

    def _kind(self, event: Event, text: str) -> tuple[str, str]:
        """Return the name of the task or host that the event concerns, and the text without this
        name and without a pid: that text is equal for equal events of several tasks. Return ("",
        "") if the event concerns neither a task nor a host."""
        if event.kind == "task" and event.task:
            return event.task, _PID.sub("", text.partition(" ")[2])
        if event.kind in ("host", "transfer") and event.host:
            return event.host, text.partition("] ")[2]
        return "", ""
