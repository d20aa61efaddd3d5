"""Exchange frames with a host's agent. Each answer has the id of its call or stream.

Each channel has one reader thread, which also sends pings. Calls may come from any thread. When the
channel is lost, every waiting call raises HostUnreachable, and the session opens a new channel for
the next call.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import paramiko

from tfdeploy.agent import frames
from tfdeploy.agent.limit import BURST_S, RateLimit
from tfdeploy.errors import HostUnreachable, TfdeployError
from tfdeploy.machine.threads import start_thread
from tfdeploy.model.answers.hosts import PING, Clock, Hello
from tfdeploy.text.typed import Args, InvalidJsonValue, StreamingVerb, Verb, convert_untrusted
from tfdeploy.transport.agent import bootstrap
from tfdeploy.transport.agent.frames import Frame, Frames
from tfdeploy.transport.agent.stream import Reply, VerbStream, read_field
from tfdeploy.transport.protocols import Stream
from tfdeploy.transport.ssh.channel_reader import BROKEN
from tfdeploy.transport.ssh.command import START_S
from tfdeploy.transport.ssh.errors import copy_error, printable_line
from tfdeploy.transport.ssh.tcp import Link

DEAD_AFTER_S = 18.0  # a channel is lost if a ping stays unanswered for this many seconds
SLICE_BYTES = 64 << 10  # one `sendall` gets at most this many bytes
# After `shorten_timeouts`: seconds between two pings, and seconds after which an unanswered ping
# means that the channel is lost.
HURRIED_PING_S, HURRIED_DEAD_AFTER_S = 2.0, 10.0
V = TypeVar("V")
I = TypeVar("I")  # noqa: E741 - an item


class FramedChannel:
    """An implementation of protocols.AgentChannel. `open` starts the agent."""

    def __init__(
        self,
        channel: paramiko.Channel,
        host: str,
        fences: dict[str, int],
        by: dict[str, str],
        rate: int,
    ) -> None:
        """Store the settings.

        `fences`: {job: number of its lock}, for the locks that this machine holds on the host.
        `by`: the operator and the command, for the host's audit log.
        `rate`: at most this many bytes per second are sent to the host. If 0, there is no limit.
        """
        self.hello: Hello
        self.clock_skew_s = 0.0
        self.noise = ""
        self._channel, self._host, self._fences, self._by = channel, host, fences, by
        self._rate, self._limit = rate, RateLimit(rate)
        self._lock = threading.Lock()  # guards `_ids`, `_answers` and `_lost`
        self._sending = threading.Lock()
        self._ids = itertools.count(1)
        self._answers: dict[int, Reply] = {}
        # Number of calls that wait for an answer. While any call waits, a slow stream must not stop
        # the reader thread.
        self._calls = 0
        self._lost: TfdeployError | None = None
        self._locked = False
        self._hurried = False
        self._stderr = b""  # the last bytes of the agent's standard error
        self._ping_due = 0.0
        # Monotonic time at which the oldest unanswered ping was due, or None if there is none. If a
        # ping could not even be sent, it also counts as unanswered.
        self._unanswered_since: float | None = None
        # Monotonic time since which a sender waits because the SSH window is full, or None if no
        # sender waits.
        self._blocked_since: float | None = None
        self._pinged_at = 0.0  # UTC time, in seconds, at which the last ping was sent

    def open(self, workdir: str, python: str, on_missing: Callable[[], object]) -> None:
        """Start the agent and read its first frame, the hello.

        `on_missing`: called if the host lacks the agent.

        Raises Refused, HostFailed, BadAnswer, HostUnreachable.
        """
        self._reader, unread, self.noise = bootstrap.start(
            self._channel, workdir, self._host, python, on_missing
        )
        self._frames = Frames(unread)
        self.hello = read_field(self._wait_for_hello(), "hello", Hello, "hello", self._host)
        self.clock_skew_s = self.hello.clock - time.time()
        start_thread(self._read, name=f"agent-{self._host}")

    @property
    def is_idle(self) -> bool:
        """True if no call waits for an answer and this channel's agent holds no lock for
        tfdeploy."""
        return not self._answers and not self._locked

    @property
    def is_lost(self) -> bool:
        """True if the channel is lost and cannot be used again."""
        return self._lost is not None

    def call(
        self, verb: Verb[V], args: Args | None = None, *, blob: bytes = b"", timeout_s: float = 60.0
    ) -> V:
        answer = Reply(self._host, self._wait_for_room, items=False)
        request_id = self._register(answer)
        with self._lock:
            self._calls += 1
        try:
            self._send(
                {"id": request_id, "verb": verb.name, "args": self._with_common_args(args)}, blob
            )
            value = read_field(
                answer.wait_for_last_frame(verb.name, timeout_s),
                "value",
                verb.value,
                verb.name,
                self._host,
            )
            if verb.name in ("lock", "unlock"):
                self._locked = verb.name == "lock"
            return value
        finally:
            with self._lock:
                self._calls -= 1
                self._answers.pop(request_id, None)

    def stream(
        self, flow: StreamingVerb[I, V], args: Args | None = None, *, silence_s: float | None = None
    ) -> Stream[I, V]:
        answer = Reply(self._host, self._wait_for_room)
        request_id = self._register(answer)
        self._send({"id": request_id, "verb": flow.name, "args": self._with_common_args(args)})
        return VerbStream(answer, flow, lambda: self._cancel(request_id), silence_s)

    def shorten_timeouts(self) -> None:
        if self._hurried:
            return
        self._hurried = True
        link = self._channel.get_transport().sock
        if isinstance(link, Link):
            link.shorten_timeouts()

    def close(self) -> None:
        self._fail_all(self._unreachable("the session was closed"))
        self._channel.close()
        self._reader.wake()

    def _with_common_args(self, args: Args | None) -> Args:
        """Return `args` with the arguments that every verb gets.

        These arguments are the operator and, if this machine holds the job's lock, the lock's
        number. The host knows which verbs need them.
        """
        fence_number = self._fences.get(str((args or {}).get("job", "")))
        fence = {} if fence_number is None else {"fence": fence_number}
        if fence:
            # An agent that receives the lock's number acquires the lock again if the verb needs it.
            # So this channel's agent may hold the lock from now on, even if the channel is new.
            self._locked = True
        return {**(args or {}), **fence, **({"by": self._by} if self._by else {})}

    def _register(self, answer: Reply) -> int:
        """Store `answer`, to which the reader thread will add frames, under a new id. Return the
        id.

        Raises the channel's error if the channel is lost.
        """
        with self._lock:
            if self._lost is not None:
                raise copy_error(self._lost)
            request_id = next(self._ids)
            self._answers[request_id] = answer
            return request_id

    def _cancel(self, request_id: int) -> None:
        """Forget the request with this id, and cancel it on the host."""
        with self._lock:
            was_waiting = self._answers.pop(request_id, None) is not None
        if was_waiting and self._lost is None:
            try:
                self._send({"cancel": request_id})
            except TfdeployError:
                return  # the channel is lost, so the agent has ended

    def _send(self, header: dict[str, object], blob: bytes = b"") -> None:
        """Send one frame in slices. Raises HostUnreachable."""
        parts = frames.encode_frame_parts(header, blob)
        try:
            with self._sending:
                for part in self._cut_into_slices(parts):
                    self._limit.wait_for_bytes(len(part))
                    self._channel.sendall(part)
        except BROKEN as error:
            ended = self._unreachable("the connection ended")
            self._fail_all(ended)
            raise copy_error(self._lost or ended) from error

    def _cut_into_slices(self, parts: tuple[bytes, bytes]) -> Iterator[bytes]:
        """Cut the data into slices of at most SLICE_BYTES, or less if the rate is limited.

        SLICE_BYTES is small, because paramiko copies the rest of a slice for each packet that it
        sends. With a limited rate, a slice is what the rate allows in BURST_S seconds. The pause
        between two slices is then much shorter than SILENCE_S, after which an agent that receives
        nothing ends its session.
        """
        step = min(SLICE_BYTES, int(self._rate * BURST_S) or SLICE_BYTES)
        return (data[start : start + step] for data in parts for start in range(0, len(data), step))

    # --- reading ---

    def _wait_for_hello(self) -> Frame:
        """Wait for the agent's first frame, the hello, and return it. Raises HostUnreachable."""
        deadline = time.monotonic() + START_S
        while True:
            try:
                for frame in self._frames.complete_frames():
                    if isinstance(frame.header.get("hello"), dict):
                        return frame
                    raise frames.WireError("no hello")
            except frames.WireError as error:
                raise self._unreachable(
                    f"the program that answers is not tfdeploy's agent: {error}"
                ) from error
            if (
                not self._receive(max(0.1, deadline - time.monotonic()))
                or time.monotonic() > deadline
            ):
                raise self._channel_end_error()

    def _read(self) -> None:
        """Read frames until the channel is lost. Runs in the reader thread."""
        error: TfdeployError
        try:
            while self._lost is None:
                self._ping_when_due()
                if not self._receive(1.0):
                    error = self._channel_end_error()
                    break
                for frame in self._frames.complete_frames():
                    self._dispatch(frame)
                if self._is_silent():
                    error = self._unreachable(
                        f"no sign of life for {self._silence_limit_s:g} s: the host or its "
                        "network is gone"
                    )
                    break
            else:
                return
        except frames.WireError as foreign:
            error = self._unreachable(
                f"the host sends data that tfdeploy's agent never sends: {foreign}"
            )
        except BROKEN as broken:
            error = self._unreachable(
                f"the connection ended: {printable_line(str(broken).encode())}"
            )
        # The bytes of another program may cause any error in the code above. This thread must not
        # end without `_fail_all`, because then all calls would wait for ever.
        except Exception as broken:  # noqa: BLE001
            error = self._unreachable(
                f"the host sends data that tfdeploy's agent never sends: {type(broken).__name__}"
            )
        self._fail_all(error)
        # `close` raises an error if the connection ends at the same time.
        with contextlib.suppress(*BROKEN):
            self._channel.close()

    def _receive(self, timeout_s: float) -> bool:
        """Read bytes and add them to `_frames`. Return False at the end of the channel."""
        before = time.monotonic()
        received = self._reader.read(timeout_s)
        now = time.monotonic()
        if now - before > timeout_s + 5.0 and self._unanswered_since is not None:
            # This process was suspended. The host's silence in this time does not count, because
            # nobody could read its bytes.
            self._unanswered_since = now
            self._blocked_since = None
        if received is None:
            return False
        out, err = received
        if out:
            self._unanswered_since = None
            self._frames.feed(out)
        if err:
            self._stderr = (self._stderr + err)[-4096:]
        return True

    def _ping_when_due(self) -> None:
        """Send a ping if one is due.

        This never waits for another sender, and never for space in the channel's window.
        """
        now = time.monotonic()
        if not self._sending.acquire(blocking=False):
            self._blocked_since = (
                None if self._channel.out_window_size else self._blocked_since or now
            )
            return
        try:
            self._blocked_since = None
            if now < self._ping_due:
                return
            frame = frames.encode_frame({"id": 0, "verb": PING.name, "args": {}})
            if self._channel.out_window_size > len(frame):
                self._channel.sendall(frame)
                self._ping_due = now + (HURRIED_PING_S if self._hurried else frames.HEARTBEAT_S)
                self._pinged_at = time.time()
            self._unanswered_since = self._unanswered_since or now
        finally:
            self._sending.release()

    @property
    def _silence_limit_s(self) -> float:
        return HURRIED_DEAD_AFTER_S if self._hurried else DEAD_AFTER_S

    def _is_silent(self) -> bool:
        """True if a ping was unanswered, or a sender was blocked, for longer than the limit."""
        return any(
            since is not None and time.monotonic() - since > self._silence_limit_s
            for since in (self._unanswered_since, self._blocked_since)
        )

    def _dispatch(self, frame: Frame) -> None:
        """Give a frame to the call or stream with its id. Drop a frame with an unknown id."""
        request_id = frame.header.get("id")
        if type(request_id) is not int:
            return
        if request_id == 0:
            self._measure_clock(frame.header.get("value"))
            return
        with self._lock:
            answer = self._answers.get(request_id)
            if not frame.has_field("item"):
                self._answers.pop(request_id, None)
        if answer is not None:
            answer.put(frame)

    def _measure_clock(self, value: Any) -> None:
        """Compute the difference between the two machines' clocks from the answer to a ping."""
        now = time.time()
        with contextlib.suppress(InvalidJsonValue):
            if 0 <= now - self._pinged_at < 2:
                self.clock_skew_s = (
                    convert_untrusted(value, Clock).clock - (now + self._pinged_at) / 2
                )

    def _wait_for_room(self, is_full: Callable[[], bool]) -> None:
        """Wait until the backlog of a stream is no longer full. Send pings meanwhile.

        The reader thread calls this if the consumer of a stream is slow. The wait also ends if the
        channel is lost, or if a call begins to wait for an answer, because only this thread can
        read the answer.
        """
        while is_full() and self._lost is None and not self._calls:
            self._ping_when_due()
            # This thread reads nothing meanwhile, so the host must not count as silent.
            self._unanswered_since = self._blocked_since = None
            time.sleep(0.02)

    def _fail_all(self, error: TfdeployError) -> None:
        """Mark the channel as lost, and let all waiting calls and streams raise the error."""
        with self._lock:
            if self._lost is not None:
                return
            self._lost = error
            waiting = list(self._answers.values())
            self._answers.clear()
        for answer in waiting:
            answer.fail(error)

    def _channel_end_error(self) -> TfdeployError:
        """Return the error for a channel that has ended. The error names the cause."""
        if not self._channel.get_transport().is_active():
            return self._unreachable("the connection ended")
        text = printable_line(self._stderr[-1200:])
        return self._unreachable("the agent ended" + (f"; it said: {text!r}" if text else ""))

    def _unreachable(self, what: str) -> HostUnreachable:
        return HostUnreachable(what, where=self._host)
