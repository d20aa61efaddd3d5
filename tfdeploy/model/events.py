"""Events: the only way up. Operations emit them; the run store writes them, progress folds them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from tfdeploy.model.typed import decode

Kind = Literal[
    "step",  # data {"step": "lock|probe|plan|sync|prepare|start|commit|rollback", "state": "begin|done|failed"}
    "host",  # data {"state": "connected|unreachable|failed|prepared|started|committed", "text"?}
    "transfer",  # data {"what": "code|data NAME", "sent_bytes", "total_bytes", "state": "begin|moving|done|failed"}
    "task",  # a TaskStatus changed: data = its wire fields
    "run",  # data {"state": RUN_STATES, "cause"?}
    "line",  # one line of a task's output: data {"stream", "line", "offset"}; line is raw text, not sanitised
    "note",  # data {"level": "info|warning|error|detail", "text"}; detail: only for who asked for much
    "plan",  # data = the plan's JSON
]


@dataclass(frozen=True)
class Event:
    """Time is UTC seconds of the control machine, or for task and line events of the host."""

    kind: Kind
    time: float
    run: str | None = None
    host: str | None = None
    task: str | None = None
    attempt: int | None = None
    data: dict[str, Any] = field(default_factory=dict)


Emit = Callable[[Event], None]


def event_to_json(event: Event) -> bytes:
    """One line, without its newline. Bytes that were not UTF-8 (surrogate escapes) become U+FFFD."""
    try:
        return msgspec.json.encode(event)
    except UnicodeEncodeError:
        return msgspec.json.encode(_replaced(msgspec.to_builtins(event)))


def _replaced(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    if isinstance(value, dict):
        return {_replaced(key): _replaced(each) for key, each in value.items()}
    return [_replaced(each) for each in value] if isinstance(value, (list, tuple)) else value


def event_from_json(line: bytes) -> Event:
    return decode(line, Event)
