"""Keep the history of a run: starts, deaths, restarts, stalls, lost connections. Equal events of
several tasks become one entry. The classes are not thread-safe."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field
from itertools import islice

from tfdeploy.model.events import Event
from tfdeploy.text.names import fold_names
from tfdeploy.ui.plain import describe_event

# The maximum number of entries that are kept.
KEPT = 500
# Equal events within this many seconds become one entry.
_TOGETHER_S = 10.0
_PID = re.compile(r" pid \d+")
# A new event is compared with this many of the newest entries. If one of these entries is equal,
# the event becomes part of it.
_LOOKED_AT = 8


@dataclass
class HistoryEntry:
    """One or more equal events. `time`: UTC seconds of the first event. `kind`: the text that the
    events share. `names`: the tasks or hosts of the events, "run" for the state of the run;
    empty for other events."""

    time: float
    kind: str
    text: str
    style: str
    names: dict[str, None] = field(default_factory=dict)
    # True if this event, the death of a task, is the cause of the run's failure.
    first: bool = False

    @property
    def folded_text(self) -> str:
        """Return the text of the entry. If several tasks or hosts have the event, return their
        names and the shared text."""
        if len(self.names) < 2:
            return self.text
        return f"{fold_names(self.names)} {self.kind}"


class RunHistory:
    """The newest KEPT entries of the run's history. The cause of the run's failure is kept too,
    however old it is."""

    def __init__(self) -> None:
        self.all: deque[HistoryEntry] = deque(maxlen=KEPT)
        self.cause: HistoryEntry | None = None
        self._states: dict[str, str] = {}

    def add(self, event: Event) -> tuple[str, str]:
        """Add the event to the history. Return the text and style of the event; ("", "") for an
        event that is not shown."""
        new = _history_entry(event)
        text, style, name = new.text, new.style, next(iter(new.names), None)
        if not text or event.kind == "step":
            return text, style
        if name:
            if self._states.get(name) == text:
                # The history already has this state of the task. After a lost connection, hosts
                # report the states of their tasks again, even if they have not changed.
                return text, style
            if name not in self._states:
                # This is the first event about the task, but the task may have been in this state
                # before the dashboard started. So the time of the state is used, not the time of
                # the event.
                new.time = event.data.get("ended") or event.data.get("started") or event.time
            self._states[name] = text
            for known in islice(reversed(self.all), _LOOKED_AT):
                is_near = abs(new.time - known.time) <= _TOGETHER_S
                if is_near and (known.kind, known.style) == (new.kind, style):
                    known.names[name] = None
                    return text, style
        self.all.append(new)
        if style == "red" and event.kind == "task" and self.cause is None:
            self.cause = new
            new.first = True
        return text, style

    @property
    def in_order(self) -> list[HistoryEntry]:
        """Return the cause of the run's failure, then all other entries, the newest last."""
        causes = [self.cause] if self.cause else []
        return [*causes, *(each for each in self.all if each is not self.cause)]

    def mark_running(self, run: str) -> None:
        """Record that the run is running, without an entry in the history. The run began to run
        before the dashboard started, at an unknown time."""
        self._states["run"], _ = describe_event(Event("run", 0.0, run, data={"state": "running"}))

    def add_past(self, event: Event) -> None:
        """Add an event from before the dashboard started, at its position in time. Such an event is
        never the cause of the failure, because the run has continued after the event."""
        entries = sorted((_history_entry(event), *self.all), key=lambda each: each.time)
        self.all = deque(entries, maxlen=KEPT)

    def forget_cause(self) -> None:
        """Forget which death was the cause of the run's failure. The run continues, so that death
        has not made it fail."""
        if self.cause is not None:
            self.cause.first = False
        self.cause = None


def _history_entry(event: Event) -> HistoryEntry:
    """Return the entry of one event. The kind of the entry is the event's text without the name of
    the task or host and without a pid. So equal events of several tasks have the same kind."""
    text, style = describe_event(event)
    name, kind = "", ""
    if event.kind == "task" and event.task:
        name, kind = event.task, _PID.sub("", text.partition(" ")[2])
    elif event.kind in ("host", "transfer") and event.host:
        name, kind = event.host, text.partition("] ")[2]
    elif event.kind == "run":
        name, kind = event.kind, text
    return HistoryEntry(event.time, kind, text, style, {name: None} if name else {})
