"""What comes back for one request: a value, or items and then the end. Filled by the reader, emptied by the caller.

The items that wait are bounded: a slow caller slows the host down, through SSH's own windows.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from tfdeploy.errors import AgentError, HostUnreachable, TfdeployError

BACKLOG_BYTES = 8 << 20
ITEM_BYTES = 200  # what an item weighs besides its blob


class Answer:
    """`room` is called by the reader with a test for "still full"; it returns when there is room, or must be."""

    def __init__(self, host: str, room: Callable[[Callable[[], bool]], None], *, items: bool = True) -> None:
        self._host, self._room = host, room
        self._changed = threading.Condition()
        self._items: deque[tuple[dict[str, Any], bytes]] = deque()
        self._weight = 0
        self._end: tuple[Any, TfdeployError | None] | None = None
        self._deaf = not items  # who wants the value alone keeps none

    def put(self, header: dict[str, Any], blob: bytes) -> None:
        """One frame of the agent with our id."""
        with self._changed:
            if "item" in header:
                if not self._deaf and isinstance(header["item"], dict):
                    self._items.append((header["item"], blob))
                    self._weight += len(blob) + ITEM_BYTES
            elif "error" in header:
                self._end = (None, _agent_error(header["error"], self._host))
            else:
                self._end = (header.get("value"), None)
            self._changed.notify_all()
        if self._full():
            self._room(self._full)

    def fail(self, error: TfdeployError) -> None:
        with self._changed:
            self._end = self._end or (None, error)
            self._changed.notify_all()

    def value(self, verb: str, timeout_s: float) -> Any:
        """The verb's value. Raises AgentError, HostUnreachable."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while self._end is None:
                if not self._changed.wait(deadline - time.monotonic()) and self._end is None:
                    raise HostUnreachable(f"no answer to {verb} within {timeout_s:g} s", where=self._host)
            value, error = self._end
        if error is not None:
            raise own(error)
        return value

    def next(self) -> tuple[dict[str, Any], bytes] | None:
        """The next item, waited for; None at the end. Raises AgentError, HostUnreachable."""
        with self._changed:
            while not self._items and self._end is None:
                self._changed.wait()
            if self._items and not self._deaf:
                item, blob = self._items.popleft()
                self._weight -= len(blob) + ITEM_BYTES
                return item, blob
            error = self._end[1] if self._end else None
        if error is not None and not self._deaf:
            raise own(error)
        return None

    @property
    def returned(self) -> Any:
        """What the verb returned; None before its end, and after `stop`."""
        return self._end[0] if self._end else None

    def stop(self) -> None:
        """Nothing more is wanted: what waits is dropped, whoever waits is let go."""
        with self._changed:
            self._deaf = True
            self._items.clear()
            self._weight = 0
            self._end = self._end or (None, None)
            self._changed.notify_all()

    def _full(self) -> bool:
        return self._weight > BACKLOG_BYTES


class VerbStream:
    """seam.Stream. May be closed from any thread, any number of times."""

    def __init__(self, answer: Answer, cancel: Callable[[], None]) -> None:
        self._answer, self._cancel = answer, cancel
        self.value: Any = None

    def __iter__(self) -> Iterator[tuple[dict[str, Any], bytes]]:
        while (found := self._answer.next()) is not None:
            yield found
        self.value = self._answer.returned

    def close(self) -> None:
        self._answer.stop()
        self._cancel()


def _agent_error(said: Any, host: str) -> AgentError:
    fields = said if isinstance(said, dict) else {"what": str(said)}
    where = fields.get("where")
    details = fields.get("details")
    return AgentError(
        str(fields.get("what") or "the agent failed without a word"),
        code=str(fields.get("code") or "unknown"),
        details=details if isinstance(details, dict) else {},
        where=f"{host}: {where}" if where and where != host else host,
        next=str(fields["next"]) if fields.get("next") else None,
    )


def own(error: TfdeployError) -> TfdeployError:
    """A fresh exception for each one who waits: one object raised in many threads would mix their tracebacks."""
    if isinstance(error, AgentError):
        return AgentError(error.what, code=error.code, details=error.details, where=error.where, next=error.next)
    if isinstance(error, HostUnreachable):
        return HostUnreachable(error.what, where=error.where, next=error.next, retries=error.retries)
    return type(error)(error.what, where=error.where, next=error.next)
