"""Hold the answer to one request: a value, or items and then a value.

The reader thread adds frames, and the caller removes them. The caller's thread checks each frame
against its type and raises BadAnswer on a mismatch. The backlog of a stream is limited in bytes, so
that a slow caller slows the host down through SSH's windows. While a call waits for its value, the
reader must continue, so the backlog may then grow to MOST_BACKLOG_BYTES. Beyond that, the stream
ends with BadAnswer.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from tfdeploy.agent import frames
from tfdeploy.errors import AgentError, BadAnswer, HostUnreachable, TfdeployError
from tfdeploy.model import advice
from tfdeploy.model.answers.failures import Failure
from tfdeploy.model.answers.reading import BadShape, read, read_text
from tfdeploy.model.answers.verb import Flow
from tfdeploy.transport.agent.frames import Frame
from tfdeploy.transport.ssh.errors import copied

BACKLOG_BYTES = 16 << 20  # with a larger backlog, the reader thread waits
MOST_BACKLOG_BYTES = 4 * BACKLOG_BYTES  # the limit while a call waits
# A stream with `silence_s` may last this many times `silence_s`, plus the time that its blobs take
# at MIN_BYTES_PER_S.
MAX_SILENCES = 30
MIN_BYTES_PER_S = 4096
MOST_PACKED_BYTES = 32 << 20  # the limit for one unpacked value
V = TypeVar("V")
I = TypeVar("I")  # noqa: E741 - an item


class Reply:
    """The frames of one answer.

    While the backlog is full, the reader thread waits in `wait_for_room`. That function gets a
    function that returns True while the backlog is full, and returns when the reader may continue.
    """

    def __init__(
        self, host: str, wait_for_room: Callable[[Callable[[], bool]], None], *, items: bool = True
    ) -> None:
        self.host, self._wait_for_room = host, wait_for_room
        self._changed = threading.Condition()
        self._items: deque[Frame] = deque()
        self._weight = 0
        self._end: Frame | TfdeployError | None = None
        self._dropping = not items  # True: items are dropped

    def put(self, frame: Frame) -> None:
        """Add one frame. Frames after the end are dropped."""
        with self._changed:
            if self._end is not None:
                return
            if not frame.holds("item"):
                self._end = frame
            elif not self._dropping:
                self._items.append(frame)
                self._weight += frame.weight_bytes
                self._end_if_flooded()
            self._changed.notify_all()
        if self._full():
            self._wait_for_room(self._full)

    def _end_if_flooded(self) -> None:
        """End the answer with BadAnswer if the backlog exceeds MOST_BACKLOG_BYTES."""
        if self._weight > MOST_BACKLOG_BYTES:
            self._items.clear()
            self._weight = 0
            self._end = BadAnswer(
                f"it sent more than {MOST_BACKLOG_BYTES >> 20} MiB that were not read yet",
                where=self.host,
            )

    def fail(self, error: TfdeployError) -> None:
        """End the answer with an error, unless it has already ended."""
        with self._changed:
            self._end = self._end or error
            self._changed.notify_all()

    def value(self, verb: str, timeout_s: float) -> Frame:
        """Wait for the frame that the verb returned, and return it.

        Raises AgentError, BadAnswer, HostUnreachable.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._end is not None, timeout_s):
                raise HostUnreachable(
                    f"no answer to {verb} within {timeout_s:g} s", where=self.host
                )
        return self.returned(verb)

    def next(self, verb: str, silence_s: float | None) -> Frame | None:
        """Wait for the next item and return it, or None if the answer has ended.

        Raises HostUnreachable if nothing comes for `silence_s` seconds.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._items or self._end is not None, silence_s):
                raise HostUnreachable(
                    f"nothing more of {verb} within {silence_s:g} s", where=self.host
                )
            if self._items:
                frame = self._items.popleft()
                self._weight -= frame.weight_bytes
                return frame
        return None

    @property
    def stopped(self) -> bool:
        """True if the items are dropped."""
        return self._dropping

    def returned(self, verb: str) -> Frame:
        """Return the last frame of an answer that has ended.

        Raises AgentError, BadAnswer, HostUnreachable.
        """
        end = self._end
        if isinstance(end, TfdeployError):
            raise copied(end)
        assert end is not None  # the caller has waited for it
        if end.holds("error"):
            raise agent_error(checked_frame(end, "error", Failure, verb, self.host), self.host)
        return end

    def stop(self) -> None:
        """Drop the backlog and all later items, and wake up waiting callers."""
        with self._changed:
            self._dropping = True
            self._items.clear()
            self._weight = 0
            self._end = self._end or Frame({"value": None}, b"", 0)
            self._changed.notify_all()

    def _full(self) -> bool:
        return self._weight > BACKLOG_BYTES


class VerbStream(Generic[I, V]):
    """An implementation of protocols.Stream.

    Any thread may close it, any number of times.
    """

    def __init__(
        self, answer: Reply, flow: Flow[I, V], cancel: Callable[[], None], silence_s: float | None
    ) -> None:
        self._answer, self._flow, self._cancel, self._silence_s = answer, flow, cancel, silence_s
        self._waited_s, self._received = 0.0, 0
        self.value: V | None = None

    def __iter__(self) -> Iterator[tuple[I, bytes]]:
        name, host = self._flow.name, self._answer.host
        try:
            while (frame := self._next(name)) is not None:
                yield checked_frame(frame, "item", self._flow.item, name, host), frame.own_blob
        except BadAnswer:
            self.close()  # later items are useless
            raise
        if not self._answer.stopped:
            self.value = checked_frame(
                self._answer.returned(name), "value", self._flow.value, name, host
            )

    def _next(self, name: str) -> Frame | None:
        """Return the next frame. Raises BadAnswer if the stream lasts too long.

        Only the time spent on waiting for frames counts.
        """
        began = time.monotonic()
        frame = self._answer.next(name, self._silence_s)
        self._waited_s += time.monotonic() - began
        self._received += len(frame.blob) if frame is not None else 0
        if (
            self._silence_s is not None
            and self._waited_s > MAX_SILENCES * self._silence_s + self._received / MIN_BYTES_PER_S
        ):
            raise BadAnswer(f"its answer to {name} has no end", where=self._answer.host)
        return frame

    def close(self) -> None:
        self._answer.stop()
        self._cancel()


def checked_frame(frame: Frame, field: str, cls: type[V], verb: str, host: str) -> V:
    """Return the content of a frame's field, which may be packed. Raises BadAnswer."""
    if frame.header.get("packed") != field:
        return checked(frame.header.get(field), cls, verb, host)
    try:
        return read_text(frames.unpack(frame.blob, MOST_PACKED_BYTES), cls)
    except (BadShape, frames.WireError) as error:
        raise BadAnswer(f"its answer to {verb} makes no sense: {error}", where=host) from error


def checked(value: Any, cls: type[V], verb: str, host: str) -> V:
    """Return `value` converted to `cls`. Raises BadAnswer if it does not fit."""
    try:
        return read(value, cls)
    except BadShape as error:
        raise BadAnswer(f"its answer to {verb} makes no sense: {error}", where=host) from error


def agent_error(failure: Failure, host: str) -> AgentError:
    """Return the error for a failure that the agent reported.

    The agent's text is quoted after the host's name. `next` comes from our own table
    (model/advice.py).
    """
    where = " ".join((failure.where or "").split())
    return AgentError(
        advice.quoted(host, failure.what)
        if failure.what
        else "the agent failed and gave no reason",
        code=failure.code,
        details=failure.details,
        where=f"{host}: {where}" if where and where != host else host,
        next=advice.next_of(failure.advice, failure.details),
    )
