"""Run the dashboard. Any thread may pass events to the dashboard, and one thread draws at most 8
frames a second.

The dashboard only shows the run: the run continues when the operator quits. The terminal is
restored, however the dashboard ends.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, Literal, NamedTuple

from rich.console import Console

from tfdeploy.model.events import Event
from tfdeploy.model.loglines import LogLine
from tfdeploy.model.plan import Plan
from tfdeploy.model.progress.run_progress import RunProgress
from tfdeploy.model.status.task_status import make_attempt_end_event
from tfdeploy.ui.dashboard.aside import wait_for_enter, write_log_lines
from tfdeploy.ui.dashboard.frame import compose_frame
from tfdeploy.ui.dashboard.keyboard import Keyboard
from tfdeploy.ui.dashboard.log_buffer import KEPT_CHARS, OURS, PER_TASK, LogBuffer
from tfdeploy.ui.dashboard.scene import Scene
from tfdeploy.ui.dashboard.view_state import Question, ViewState
from tfdeploy.ui.dashboard.wake_pipe import WakePipe
from tfdeploy.ui.screen import Screen
from tfdeploy.ui.summary import LAST_LINES, show_summary
from tfdeploy.ui.terminal import Terminal, terminal_of

if TYPE_CHECKING:
    from tfdeploy.model.status.task_status import Samples

# The minimum number of seconds between two frames.
FRAME_S = 1 / 8
# While no event arrives, the clock and the terminal's size are checked at this interval, in
# seconds, because both change what the dashboard shows.
IDLE_S = 1 / 4
# For this many seconds, the dashboard still shows a run that has ended.
LINGER_S = 1.0
# The maximum number of lines in the queue, which grows while the terminal blocks. Further lines are
# only counted.
QUEUED_LINES = 20_000


class _LineBatch(NamedTuple):
    """A batch of lines of one task that have the same time. `kept`: the newest lines of the batch.
    `total`: the number of all lines in the batch, kept or not."""

    kept: list[LogLine]
    total: int


class _DashboardEnded(BaseException):
    def __init__(self, signum: int) -> None:
        self.signum = signum


class Dashboard:
    """A full-screen view of a run.

    Any thread may pass an Event by calling the object itself, and lines by calling `take_lines`.
    `run` draws until the run ends, `close` is called, or the operator quits."""

    def __init__(
        self,
        plan: Plan | None = None,
        *,
        in_fd: int | None = None,
        console: Console | None = None,
        summary: Terminal | None = None,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
        add_options: Callable[[str], str] = str,
        command: Callable[[Sequence[str]], None] | None = None,
    ) -> None:
        """Create the dashboard; draw nothing yet.

        `plan`: the plan of a committed run; None for a launch, whose events contain the plan.
        `in_fd`: the descriptor to read keys from (default: standard input). `console`: the terminal
        to draw on (default: stderr). `summary`: the stream for the summary at the end (default:
        stderr). `clock`: monotonic seconds. `now`: UTC seconds. `add_options`: adds the operator's
        own options, such as `-i FILE`, to a command that the dashboard shows, so that the operator
        can type this command. `command`: runs a command of tfdeploy, given as its arguments, on the
        terminal; None for a launch, during which an action that needs a command waits."""
        self.progress = RunProgress(plan)
        self.ring = LogBuffer()
        self.view = ViewState(self.ring, self.progress)
        self.scene = Scene(self.progress, self.ring, self.view, add_options=add_options)
        self.trends, self.happenings = self.scene.trends, self.scene.happenings
        self._command = command
        # The samples that were passed to `add_past_samples` and are not drawn yet.
        self._past: Samples | None = None
        self._committed = plan is not None
        self._in_fd = in_fd
        self._console = console or Console(file=sys.stderr)
        self._summary = summary
        self._clock = clock
        self._now = now
        self._queue: deque[Event | _LineBatch] = deque()
        # How many lines are in the queue.
        self._waiting = 0
        # How many lines have arrived while the queue was full.
        self._skipped = 0
        self._lines_lock = threading.Lock()
        self._closed = threading.Event()
        self._wake_pipe = WakePipe()
        # Set while `draw_in_thread` draws in its own thread.
        self._may_draw_in_thread = threading.Event()
        # {task: (the number of its lines and steps, the time of `clock` when this number last
        # changed)}.
        self._last_signs: dict[str, tuple[int, float]] = {}

    def __call__(self, event: Event | _LineBatch) -> None:
        self._queue.append(event)
        self._wake_pipe.wake()

    def take_lines(self, batch: list[LogLine]) -> None:
        """Queue lines of one task that have the same time. Any thread may call this method. Lines
        that the buffer would not keep are only counted."""
        kept = batch[-PER_TASK:]
        with self._lines_lock:
            if self._waiting > QUEUED_LINES:
                self._skipped += len(batch)
                return
            self._waiting += len(kept)
        self(_LineBatch(kept, len(batch)))

    def add_past_samples(self, samples: Samples) -> None:
        """Add the samples that the hosts recorded before the dashboard started, so that the curves
        begin with the run. Any thread may call this method."""
        self._past = samples

    def _apply_past_samples(self, samples: Samples) -> None:
        self.trends.add_past_samples(samples, self.progress)
        for each in self.progress.merge_attempts(samples.attempts):
            if each.outcome not in ("succeeded", "stopped"):
                self.happenings.add_past(
                    make_attempt_end_event(each, self.progress.tasks[each.task].host)
                )

    def close(self) -> None:
        """Record that no more events arrive, because the launch has failed or the run is no longer
        followed. `run` returns once it has drawn all queued events."""
        self._closed.set()
        self._wake_pipe.wake()

    @contextmanager
    def draw_in_thread(self) -> Iterator[None]:
        """Draw in a separate thread while the `with` block runs. A launch uses this method: the
        block launches the run, and the operator cannot leave the dashboard before the launch is
        committed. The code in the block must handle all signals."""
        self._may_draw_in_thread.set()
        thread = threading.Thread(target=self._draw_until_left, name="dashboard", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._may_draw_in_thread.clear()
            self._wake_pipe.wake()
            thread.join()

    def run(self) -> Literal["left", "ended"]:
        """Draw until the run ends (return "ended") or the operator quits (return "left"; the run
        continues).

        Call this method in the main thread. After the launch is committed, Ctrl-C also returns
        "left". Before that, Ctrl-C raises KeyboardInterrupt, so that the caller can roll back the
        launch."""
        how: Literal["left", "ended"] = "ended"
        try:
            with _handle_signals(_end_dashboard, signal.SIGTERM, signal.SIGHUP):
                how = self._draw_until_left()
        except KeyboardInterrupt:
            self._write_summary()
            if self._is_launching:
                raise
            return "left"
        except _DashboardEnded as ended:
            os.kill(os.getpid(), ended.signum)
        self._write_summary()
        return how

    @property
    def _is_launching(self) -> bool:
        return not self._committed and self.progress.state == "starting"

    def apply_events(self) -> bool:
        """Apply the queued events. Return True if there were any events."""
        queue, ring, progress = self._queue, self.ring, self.progress
        self._wake_pipe.drain()
        with self._lines_lock:
            ring.count += self._skipped
            self._skipped = self._waiting = 0
            count = len(queue)
        for _ in range(count):
            event = queue.popleft()
            if isinstance(event, _LineBatch):
                self._apply_lines(event)
            else:
                self._apply(event)
        if not progress.cause:
            self.happenings.forget_cause()
        if count and progress.latest is not None:
            self.trends.update(progress, progress.latest)
        if self._past is not None:
            self._apply_past_samples(self._past)
            self._past = None
        return count > 0

    def _apply(self, event: Event) -> None:
        self.progress.apply_event(event)
        text, style = self.happenings.add(event)
        if text and event.kind != "step":
            self.ring.add(OURS, "", text, style or "bold", event.task or "")

    def _apply_lines(self, batch: _LineBatch) -> None:
        _, task, host, *_ = last = batch.kept[-1]
        texts = [_decode_line(line.line) for line in batch.kept]
        self.progress.take_lines(task, host, last.time, texts, batch.total)
        self.ring.add_many(task, host, texts, batch.total)

    def _draw_until_left(self) -> Literal["left", "ended"]:
        in_fd = sys.stdin.fileno() if self._in_fd is None else self._in_fd
        while True:
            with Keyboard(in_fd) as keyboard, Screen(self._console) as screen:
                self.scene.unicode = screen.unicode
                try:
                    how = self._draw_loop(keyboard, screen)
                except OSError:
                    # An OSError means that the terminal has closed.
                    return "left"
            if self.view.quit and self._is_launching:
                self._console.file.write("the launch goes on; Ctrl-C undoes it\n")
                self._console.file.flush()
            if how != "aside":
                return how
            action, self.view.aside = self.view.aside, None
            if action is not None:
                self._run_aside_action(action, in_fd)

    def _run_aside_action(self, question: Question, in_fd: int) -> None:
        """Carry out an action of the operator on the terminal's normal screen, while the dashboard
        is not shown: write the log as plain text, or run a command of tfdeploy."""
        run = self.progress.run or ""
        if question.action == "copy":
            write_log_lines(self._console.file, self.view)
        elif self._command is not None:
            verbs = {
                "stop": ("stop", run, "--yes"),
                "shell": ("ssh", question.host),
                "fetch": ("fetch", run, "--logs"),
            }[question.action]
            with _handle_signals(_ignore_signal, signal.SIGINT):
                self._command(verbs)
        if question.action != "shell":
            wait_for_enter(self._console.file, in_fd)

    def _draw_loop(self, keyboard: Keyboard, screen: Screen) -> Literal["left", "ended", "aside"]:
        in_own_thread = self._may_draw_in_thread.is_set()
        drawn, size, second, fresh = 0.0, (0, 0), 0, True
        over_since: float | None = None
        while True:
            fresh |= self.apply_events()
            clock = self._clock()
            if clock - drawn >= FRAME_S and (
                fresh or screen.size() != size or int(clock) != second
            ):
                size, second, fresh, drawn = screen.size(), int(clock), False, clock
                self.draw(screen, *size)
            if self.progress.is_final or self._closed.is_set():
                over_since = clock if over_since is None else over_since
                if not fresh and clock - over_since >= (LINGER_S if self.progress.is_final else 0):
                    return "ended"
            wait_s = max(0.01, FRAME_S - (self._clock() - drawn)) if fresh else IDLE_S
            for key in keyboard.read(wait_s, None if fresh else self._wake_pipe.fd):
                self.view.handle_key(key)
                fresh = True
            if self.view.quit or keyboard.gone:
                return "left"
            # The block of `draw_in_thread` has ended. From now on `run` draws, so the key strokes
            # that are not read yet are handed over to `run`.
            if in_own_thread and not self._may_draw_in_thread.is_set():
                for key in keyboard.hand_over_unread():
                    self.view.handle_key(key)
                return "left"
            aside = self.view.aside
            if aside is not None and (self._command is not None or aside.action == "copy"):
                return "aside"

    def draw(self, screen: Screen, width: int, height: int) -> None:
        self.ring.record_arrivals(self._clock())
        self._measure_silence()
        screen.draw(compose_frame(self.scene, width, height, self._now()))

    def _measure_silence(self) -> None:
        """Update, for each task, the number of seconds since its last line or step, by this
        machine's clock."""
        clock = self._clock()
        for name, task in self.progress.tasks.items():
            signs = task.lines + task.written_steps
            if self._last_signs.get(name, (-1, clock))[0] != signs:
                self._last_signs[name] = signs, clock
            self.scene.quiet_s_by_task[name] = clock - self._last_signs[name][1]

    def _write_summary(self) -> None:
        """Write the summary of the run. Write nothing for a launch that failed, because the error
        that the caller shows says more."""
        self.apply_events()
        if self._is_launching and not self.view.quit:
            return
        death = self.progress.first_death
        last = self.ring.last_texts_of(death.task, LAST_LINES) if death else []
        terminal, now = self._summary or terminal_of(sys.stderr), self._now()
        with suppress(OSError):
            show_summary(terminal, self.progress, last, now=now, add_options=self.scene.add_options)


def _decode_line(line: bytes) -> str:
    if len(line) > KEPT_CHARS:
        line = line.rstrip(b"\r\x08")
        # Only KEPT_CHARS characters are kept, and each has at most four bytes in UTF-8.
        line = line[line.rfind(b"\r") + 1 :][: 4 * KEPT_CHARS]
    return line.decode("utf-8", "surrogateescape")[:KEPT_CHARS]


def _ignore_signal(signum: int, frame: FrameType | None) -> None:
    """Ignore the signal of Ctrl-C, which is meant for the command that runs on the terminal."""


def _end_dashboard(signum: int, frame: FrameType | None) -> None:
    """Raise an exception at SIGTERM or SIGHUP, so that the terminal is restored before the process
    ends."""
    raise _DashboardEnded(signum)


@contextmanager
def _handle_signals(
    handler: Callable[[int, FrameType | None], None], *signals: int
) -> Iterator[None]:
    """Handle the signals with `handler` while the `with` block runs. Do nothing outside the main
    thread, where Python cannot set signal handlers."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in signals}
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)
