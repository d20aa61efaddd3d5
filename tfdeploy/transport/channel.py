"""The framed channel to the agent of one host: answers by id, streams, a heartbeat both ways.

One reader thread per channel; any thread may call. A channel that is lost fails every waiting call with
HostUnreachable, once and for good: the session makes a new one.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Callable
from typing import Any

import paramiko

from tfdeploy.agent import wire
from tfdeploy.errors import HostUnreachable, TfdeployError
from tfdeploy.transport import bootstrap
from tfdeploy.transport.causes import clean
from tfdeploy.transport.frames import Frames
from tfdeploy.transport.link import Link
from tfdeploy.transport.seam import Stream
from tfdeploy.transport.stream import Answer, VerbStream, own

DEAD_AFTER_S = 18.0  # of silence after a ping
HURRIED_PING_S, HURRIED_DEAD_AFTER_S = 2.0, 10.0


class FramedChannel:
    """`open` starts the agent; see seam.AgentChannel for what the rest promises."""

    def __init__(self, channel: paramiko.Channel, host: str) -> None:
        self.hello: dict[str, Any] = {}
        self.clock_skew_s = 0.0
        self._channel, self._host = channel, host
        self._lock = threading.Lock()  # ids, answers, lost
        self._sending = threading.Lock()
        self._ids = itertools.count(1)
        self._answers: dict[int, Answer] = {}
        self._calls = 0  # waiting in `call`: a slow stream must not hold them up
        self._lost: TfdeployError | None = None
        self._hurried = False
        self._said = b""  # the agent's standard error
        self._ping_due = 0.0
        self._ping_sent: float | None = None  # unanswered since, monotonic
        self._stuck: float | None = None  # somebody sends, and there is no room for it since
        self._pinged = 0.0  # UTC seconds

    def open(self, workdir: str, python: str = "python3") -> None:
        """Raises Refused, HostFailed, HostUnreachable."""
        self._pump, rest = bootstrap.start(self._channel, workdir, self._host, python)
        self._frames = Frames(rest)
        hello = self._first_frame()
        self.hello = hello
        self.clock_skew_s = float(hello.get("clock", time.time())) - time.time()
        threading.Thread(target=self._read, name=f"agent-{self._host}", daemon=True).start()

    @property
    def lost(self) -> bool:
        return self._lost is not None

    def call(self, verb: str, args: dict[str, Any] | None = None, *, blob: bytes = b"", timeout_s: float = 60.0) -> Any:
        answer = Answer(self._host, self._room, items=False)
        number = self._register(answer)
        with self._lock:
            self._calls += 1
        try:
            self._send({"id": number, "verb": verb, "args": args or {}}, blob)
            return answer.value(verb, timeout_s)
        finally:
            with self._lock:
                self._calls -= 1
                self._answers.pop(number, None)

    def stream(self, verb: str, args: dict[str, Any] | None = None) -> Stream:
        answer = Answer(self._host, self._room)
        number = self._register(answer)
        self._send({"id": number, "verb": verb, "args": args or {}})
        return VerbStream(answer, lambda: self._cancel(number))

    def hurry(self) -> None:
        if self._hurried:
            return
        self._hurried = True
        link = self._channel.get_transport().sock
        if isinstance(link, Link):
            link.hurry()

    def close(self) -> None:
        self._lose(HostUnreachable("the session was closed", where=self._host))
        self._channel.close()
        self._pump.wake()

    def _register(self, answer: Answer) -> int:
        with self._lock:
            if self._lost is not None:
                raise own(self._lost)
            number = next(self._ids)
            self._answers[number] = answer
            return number

    def _cancel(self, number: int) -> None:
        with self._lock:
            known = self._answers.pop(number, None) is not None
        if known and self._lost is None:
            try:
                self._send({"cancel": number})
            except TfdeployError:
                return  # lost: nothing to cancel there

    def _send(self, header: dict[str, Any], blob: bytes = b"") -> None:
        data = wire.encode_frame(header, blob)
        try:
            with self._sending:
                self._channel.sendall(data)
        except (OSError, EOFError, paramiko.SSHException) as error:
            self._lose(HostUnreachable("the connection ended", where=self._host))
            raise own(self._lost or HostUnreachable("the connection ended", where=self._host)) from error

    # --- the reader's side ---

    def _first_frame(self) -> dict[str, Any]:
        deadline = time.monotonic() + bootstrap.START_S
        while True:
            try:
                for header, _ in self._frames.take():
                    hello = header.get("hello")
                    if isinstance(hello, dict):
                        return hello
                    raise wire.WireError("no hello")
            except wire.WireError as error:
                raise HostUnreachable(f"what answers is not our agent: {error}", where=self._host) from error
            if not self._more(max(0.1, deadline - time.monotonic())) or time.monotonic() > deadline:
                raise self._gone()

    def _read(self) -> None:
        error: TfdeployError
        try:
            while self._lost is None:
                self._beat()
                if not self._more(1.0):
                    error = self._gone()
                    break
                for header, blob in self._frames.take():
                    self._hand_out(header, blob)
                if self._silent():
                    error = HostUnreachable(
                        f"no sign of life for {self._patience_s:g} s: the host or its network is gone", where=self._host
                    )
                    break
            else:
                return
        except wire.WireError as foreign:
            error = HostUnreachable(f"what the host sends is not our agent's: {foreign}", where=self._host)
        except (OSError, EOFError, paramiko.SSHException) as broken:
            error = HostUnreachable(f"the connection ended: {clean(str(broken).encode())}", where=self._host)
        except Exception as broken:  # noqa: BLE001 - garbage finds its way; without this thread all would wait for ever
            error = HostUnreachable(f"what the host sends is not our agent's: {type(broken).__name__}", where=self._host)
        self._lose(error)
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):  # the connection may end at this very moment
            self._channel.close()

    def _more(self, timeout_s: float) -> bool:
        """Feeds what came to the frames. False at the end."""
        before = time.monotonic()
        got = self._pump.read(timeout_s)
        now = time.monotonic()
        if now - before > timeout_s + 5.0 and self._ping_sent is not None:
            self._ping_sent = now  # we were stopped ourselves: the silence was ours
            self._stuck = None
        if got is None:
            return False
        out, err = got
        if out:
            self._ping_sent = None
            self._frames.feed(out)
        if err:
            self._said = (self._said + err)[-4096:]
        return True

    def _beat(self) -> None:
        """A ping when it is due, never waiting for others who send, nor for room in the channel's window."""
        now = time.monotonic()
        if not self._sending.acquire(blocking=False):
            self._stuck = None if self._channel.out_window_size else self._stuck or now
            return
        try:
            self._stuck = None
            if now < self._ping_due:
                return
            frame = wire.encode_frame({"id": 0, "verb": "ping", "args": {}})
            if self._channel.out_window_size > len(frame):
                self._channel.sendall(frame)
                self._ping_due = now + min(wire.HEARTBEAT_S, HURRIED_PING_S if self._hurried else wire.HEARTBEAT_S)
                self._pinged = time.time()
            self._ping_sent = self._ping_sent or now
        finally:
            self._sending.release()

    @property
    def _patience_s(self) -> float:
        return min(DEAD_AFTER_S, HURRIED_DEAD_AFTER_S) if self._hurried else DEAD_AFTER_S

    def _silent(self) -> bool:
        """No answer to a ping; or no room for what is being sent, so that none can be asked for."""
        return any(since is not None and time.monotonic() - since > self._patience_s for since in (self._ping_sent, self._stuck))

    def _hand_out(self, header: dict[str, Any], blob: bytes) -> None:
        number = header.get("id")
        if number == 0:
            self._measure(header)
            return
        with self._lock:
            answer = self._answers.get(number) if isinstance(number, int) else None
            if answer is not None and "item" not in header:
                self._answers.pop(number, None)  # type: ignore[arg-type]
        if answer is not None:
            answer.put(header, blob)

    def _measure(self, header: dict[str, Any]) -> None:
        value = header.get("value")
        if isinstance(value, dict) and isinstance(value.get("clock"), (int, float)):
            now = time.time()
            if 0 <= now - self._pinged < 2:
                self.clock_skew_s = float(value["clock"]) - (now + self._pinged) / 2

    def _room(self, full: Callable[[], bool]) -> None:
        """Called by the reader when a stream's reader is slow: waits, with the heart going on, unless a call waits."""
        while full() and self._lost is None and not self._calls:
            self._beat()
            self._ping_sent = self._stuck = None  # nothing is read just now: silence means nothing
            time.sleep(0.02)

    def _lose(self, error: TfdeployError) -> None:
        with self._lock:
            if self._lost is not None:
                return
            self._lost = error
            waiting = list(self._answers.values())
            self._answers.clear()
        for answer in waiting:
            answer.fail(error)

    def _gone(self) -> TfdeployError:
        if not self._channel.get_transport().is_active():
            return HostUnreachable("the connection ended", where=self._host)
        text = clean(self._said[-1200:])
        return HostUnreachable("the agent ended" + (f"; it said: {text!r}" if text else ""), where=self._host)
