"""Hold the answer to one request: either one value, or items followed by a value.

The reader thread adds frames, and the caller takes them out. The caller's thread checks each frame
and raises BadAnswer if the frame has the wrong type.

The backlog is the frames in memory. If it exceeds BACKLOG_BYTES, the reader thread waits, and SSH's
windows then slow the host down. But while any call waits for its value, the reader thread must read
on, so the backlog may grow to MOST_BACKLOG_BYTES. Beyond that, the stream ends with BadAnswer.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from tfdeploy.agent import frames
from tfdeploy.errors import AgentError, BadAnswer, HostUnreachable, TfdeployError
from tfdeploy.model.answers.failures import (
    Failure,
    format_advice,
    quote_host_text,
)
from tfdeploy.text.allowed import to_printable_line
from tfdeploy.text.typed import (
    InvalidJsonValue,
    StreamingVerb,
    convert_untrusted,
    decode_untrusted,
)
from tfdeploy.transport.agent.frames import Frame
from tfdeploy.transport.ssh.errors import copy_error

BACKLOG_BYTES = 16 << 20  # with a larger backlog of unread frames, the reader thread waits
MOST_BACKLOG_BYTES = 4 * BACKLOG_BYTES  # maximum size of the backlog while a call waits
# A stream with `silence_s` may last MAX_SILENCES times `silence_s`, plus the time that its blobs
# take at MIN_BYTES_PER_S.
MAX_SILENCES = 30
MIN_BYTES_PER_S = 4096
MOST_PACKED_BYTES = 32 << 20  # a compressed value may have at most this size when decompressed
V = TypeVar("V")
I = TypeVar("I")  # noqa: E741 - an item


class Reply:
    """The frames of one answer that the caller has not taken yet.

    `wait_for_room(is_full)`: a function in which the reader thread waits while `is_full()` is True,
    which means that the backlog is too large. The function may return earlier.
    """

    def __init__(
        self, host: str, wait_for_room: Callable[[Callable[[], bool]], None], *, items: bool = True
    ) -> None:
        self.host, self._wait_for_room = host, wait_for_room
        self._changed = threading.Condition()
        self._items: deque[Frame] = deque()
        self._weight = 0
        self._last_frame: Frame | TfdeployError | None = None
        self.dropping = not items  # True if items are dropped, and only the final value is kept

    def put(self, frame: Frame) -> None:
        """Add one frame. Drop it if the answer has already ended."""
        with self._changed:
            if self._last_frame is not None:
                return
            if not frame.has_field("item"):
                self._last_frame = frame
            elif not self.dropping:
                self._items.append(frame)
                self._weight += frame.weight_bytes
                if self._weight > MOST_BACKLOG_BYTES:
                    self._drop_items()
                    self._last_frame = BadAnswer(
                        f"the host sends too fast: {MOST_BACKLOG_BYTES >> 20} MiB are still unread",
                        where=self.host,
                    )
            self._changed.notify_all()
        if self._is_full():
            self._wait_for_room(self._is_full)

    def _drop_items(self) -> None:
        self._items.clear()
        self._weight = 0

    def fail(self, error: TfdeployError) -> None:
        """End the answer with an error, unless the answer has already ended."""
        with self._changed:
            self._last_frame = self._last_frame or error
            self._changed.notify_all()

    def wait_for_last_frame(self, verb: str, timeout_s: float) -> Frame:
        """Wait for the last frame of the answer, which has the verb's value, and return it.

        Raises AgentError, BadAnswer, HostUnreachable.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._last_frame is not None, timeout_s):
                raise HostUnreachable(
                    f"no answer to {verb} within {timeout_s:g} s", where=self.host
                )
        return self.last_answer(verb)

    def next(self, verb: str, silence_s: float | None) -> Frame | None:
        """Wait for the next item and return it, or None if the answer has ended.

        Raises HostUnreachable if nothing comes for `silence_s` seconds.
        """
        with self._changed:
            if not self._changed.wait_for(
                lambda: self._items or self._last_frame is not None, silence_s
            ):
                raise HostUnreachable(
                    f"no further answer to {verb} within {silence_s:g} s", where=self.host
                )
            if self._items:
                frame = self._items.popleft()
                self._weight -= frame.weight_bytes
                return frame
        return None

    def last_answer(self, verb: str) -> Frame:
        """Return the last frame of the answer. The answer must have ended.

        Raises AgentError, BadAnswer, HostUnreachable.
        """
        last_frame = self._last_frame
        if isinstance(last_frame, TfdeployError):
            raise copy_error(last_frame)
        assert last_frame is not None  # the caller has waited for the end of the answer
        if last_frame.has_field("error"):
            raise agent_error(read_field(last_frame, "error", Failure, verb, self.host), self.host)
        return last_frame

    def stop(self) -> None:
        """Drop all items, now and later, and wake up the callers that wait."""
        with self._changed:
            self.dropping = True
            self._drop_items()
            self._last_frame = self._last_frame or Frame({"value": None}, b"", 0)
            self._changed.notify_all()

    def _is_full(self) -> bool:
        return self._weight > BACKLOG_BYTES


@dataclass
class VerbStream(Generic[I, V]):
    """An implementation of protocols.Stream.

    `close` may be called from any thread, and several times.
    """

    answer: Reply
    flow: StreamingVerb[I, V]
    cancel: Callable[[], None]
    silence_s: float | None
    value: V | None = None
    waited_s: float = 0.0
    received: int = 0

    def __iter__(self) -> Iterator[tuple[I, bytes]]:
        name, host = self.flow.name, self.answer.host
        try:
            while (frame := self._next_frame(name)) is not None:
                yield read_field(frame, "item", self.flow.item, name, host), frame.unpacked_blob
        except BadAnswer:
            self.close()  # cancels the call after an invalid item, so that the host stops sending
            raise
        if not self.answer.dropping:
            self.value = read_field(
                self.answer.last_answer(name), "value", self.flow.value, name, host
            )

    def _next_frame(self, name: str) -> Frame | None:
        """Return the next frame, or None at the end. Raises BadAnswer if the stream lasts too long.

        Only the time spent waiting for frames counts, not the time that the caller needs for them.
        """
        began = time.monotonic()
        frame = self.answer.next(name, self.silence_s)
        self.waited_s += time.monotonic() - began
        self.received += len(frame.blob) if frame is not None else 0
        if (
            self.silence_s is not None
            and self.waited_s > MAX_SILENCES * self.silence_s + self.received / MIN_BYTES_PER_S
        ):
            raise BadAnswer(f"the host's answer to {name} takes too long", where=self.answer.host)
        return frame

    def close(self) -> None:
        self.answer.stop()
        self.cancel()


def read_field(frame: Frame, field: str, cls: type[V], verb: str, host: str) -> V:
    """Return the field `field` of the frame as `cls`. The field may be in the header, or compressed
    in the blob. Raises BadAnswer."""
    try:
        if frame.header.get("packed") != field:
            return convert_untrusted(frame.header.get(field), cls)
        return decode_untrusted(frames.decompress(frame.blob, MOST_PACKED_BYTES), cls)
    except (InvalidJsonValue, frames.WireError) as error:
        raise BadAnswer(f"the host's answer to {verb} is invalid: {error}", where=host) from error


def agent_error(failure: Failure, host: str) -> AgentError:
    """Return the AgentError for a failure that the agent reported.

    The message names the host and quotes the agent's text. The error's `next` (what to type) is a
    text of tfdeploy (model/answers/failures.py), never of the host.
    """
    where = to_printable_line(" ".join((failure.where or "").split()))
    return AgentError(
        quote_host_text(host, failure.what)
        if failure.what
        else "the agent failed and gave no reason",
        code=failure.code,
        details=failure.details,
        where=f"{host}: {where}" if where and where != host else host,
        next=format_advice(host, failure.advice, failure.details),
    )
