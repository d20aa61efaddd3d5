"""Write events as plain lines, for pipes, logs of CI jobs, and terminals without the dashboard.

Messages go to one stream ("[n2] code 1.2 MB sent"), and the output of tasks to another
("worker:0@n2 | text"). Text of programs and hosts is sanitised. Any thread may pass events; lines
are never mixed. If a write fails (the reader has closed the pipe, the disk is full), nothing more
is written to that stream, and the operation continues.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TextIO

from tfdeploy.model.events import (
    BroadcastFields,
    Event,
    HostFields,
    NoteFields,
    RunFields,
    StepFields,
    TaskFields,
    TransferFields,
)
from tfdeploy.model.loglines import LogLine
from tfdeploy.model.status.task_status import Death
from tfdeploy.ui.amounts import format_bytes, format_count, format_duration
from tfdeploy.ui.sanitise import clean, clean_line
from tfdeploy.ui.terminal import Terminal, task_color, terminal_of

_TextAndStyle = tuple[str, str]  # a line, and its style
_NOTHING = "", ""
_LEVEL_STYLE = {"error": "bold red", "warning": "yellow"}
_STATE_STYLE = {
    "succeeded": "bold green",
    "failed": "bold red",
    "lost": "bold red",
    "stopped": "bold yellow",
}


class PlainView:
    """Writes events and lines of tasks. To pass an Event, call the object itself; to pass lines,
    call `take_lines`.

    `lines`: the stream for the tasks' output, or None to show no output of tasks. `quiet`: write
    only warnings and errors."""

    def __init__(
        self,
        messages: Terminal | None = None,
        lines: TextIO | None = None,
        *,
        quiet: bool = False,
        verbose: bool = False,
        color_lines: bool = False,
    ) -> None:
        self.messages = messages or terminal_of(sys.stderr)
        self.lines = None if lines is None else Terminal(lines, None, color_lines)
        self.quiet, self.verbose = quiet, verbose
        self._lock = threading.Lock()
        self._last_text: dict[str, str] = {}
        self._told_causes: set[str] = set()
        self._failed: list[TextIO] = []
        self._label_width = 0

    def __call__(self, event: Event) -> None:
        with self._lock:
            text, style = self._text_and_style(event)
            if text:
                self._write(self.messages, self.messages.paint(text, style) + "\n")

    def _write(self, terminal: Terminal, text: str) -> None:
        if not any(terminal.stream is failed for failed in self._failed):
            try:
                terminal.write(text)
            except (OSError, ValueError):
                # A ValueError means that the stream is closed.
                self._failed.append(terminal.stream)

    def take_lines(self, batch: list[LogLine]) -> None:
        """Write lines of one task that have the same time. Any thread may call this method."""
        if self.lines is None:
            return
        task = clean(batch[0].task, 80)
        label = f"{task}@{clean(batch[0].host, 80)}"
        texts = [clean_line(line.line.decode("utf-8", "surrogateescape")) for line in batch]
        with self._lock:
            self._label_width = max(self._label_width, len(label))
            label = label.ljust(self._label_width)
            if self.lines.color:
                label = f"\x1b[{task_color(task)}m{label}\x1b[0m"
            self._write(self.lines, "".join(f"{label} | {text}\n" for text in texts))

    def _text_and_style(self, event: Event) -> _TextAndStyle:
        """Return the text to print for the event, and its style. Return ("", "") if the event is
        not shown, or if it repeats the last text about the same task or host. If several tasks were
        stopped for the same cause, only the first of their lines has the cause; the line about the
        end of the run has it again."""
        text, style = describe_event(event, verbose=self.verbose)
        key = f"{event.kind} {event.host} {event.task} {event.data.get('what', '')}"
        if not text or (event.kind != "note" and self._last_text.get(key) == text):
            return _NOTHING
        self._last_text[key] = text
        if self.quiet and "red" not in style and "yellow" not in style:
            return _NOTHING
        cause = event.data.get("cause") or event.data.get("reason")
        if cause not in self._told_causes:
            self._told_causes.update({cause} if cause else ())
        elif event.kind == "run" and event.data["state"] == "running":
            return _NOTHING
        elif event.data.get("outcome") == "stopped":
            text, _ = describe_event(replace(event, data={**event.data, "reason": None}))
        return text, style


def describe_event(event: Event, *, verbose: bool = False) -> _TextAndStyle:
    """Return a sanitised line that describes the event, and its style; ("", "") for an event that
    is not shown."""
    where = f"[{clean(event.host, 80)}] " if event.host and event.kind != "task" else ""
    formatter = _FORMATTERS.get(event.kind)
    text, style = formatter(event, event.data, verbose) if formatter else _NOTHING
    return (where + clean(text) if text else ""), style


def _describe_step(event: Event, data: StepFields, verbose: bool) -> _TextAndStyle:
    step, state = data.get("step"), data.get("state")
    if state == "failed":
        return f"{step} failed", "red"
    if state != "begin" and not verbose:
        return _NOTHING
    return f"{step} {'...' if state == 'begin' else state}", "dim"


def _describe_host(event: Event, data: HostFields, verbose: bool) -> _TextAndStyle:
    state, text = data.get("state", ""), data.get("text")
    is_bad = state in ("unreachable", "failed")
    if not (is_bad or verbose or text):
        return _NOTHING
    return (f"{state}: {text}" if text else state), "red" if is_bad else ""


def _describe_transfer(event: Event, data: TransferFields, verbose: bool) -> _TextAndStyle:
    what, state = data.get("what", ""), data.get("state")
    if state == "failed":
        return f"{what} failed", "red"
    sent, done = data.get("total_bytes") or data.get("sent_bytes") or 0, data.get("done") or "sent"
    if state != "done" or (what == "all" and sent):
        return _NOTHING
    if what == "all":
        return f"nothing {done}: all files were up to date", ""
    return f"{what} {format_bytes(sent)} {done}", ""


def _describe_broadcast(event: Event, data: BroadcastFields, verbose: bool) -> _TextAndStyle:
    """Return the line about a finished broadcast: 'data digits: 256 MB to 16 hosts in 45 s (5.7
    MB/s); the slowest link (n3 from n2) allows 5.9 MB/s'."""
    if data["state"] != "done":
        return _NOTHING
    total, seconds = data.get("total_bytes", 0), data.get("seconds", 0.0)
    rate = f" ({format_bytes(total / seconds)}/s)" if seconds else ""
    hosts = format_count(data.get("hosts", 0), "host")
    text = f"{data['what']}: {format_bytes(total)} to {hosts} in {format_duration(seconds)}{rate}"
    if slowest := data.get("slowest"):
        parents = " and ".join(parent or "here" for parent in slowest["parents"])
        link_rate = f"{format_bytes(slowest['rate'])}/s"
        text += f"; the slowest link ({slowest['host']} from {parents}) allows {link_rate}"
    return text, ""


def _describe_task(event: Event, data: TaskFields, verbose: bool) -> _TextAndStyle:
    state, reason = data.get("state"), data.get("reason")
    name = f"{event.task or data.get('task') or '?'}@{event.host or data.get('host') or '?'}"
    attempt = f", attempt {event.attempt}" if (event.attempt or 1) > 1 else ""
    if state == "running" and data.get("health"):
        return f"{name} {data['health']}: {data.get('health_reason')}{attempt}", "yellow"
    if state in ("starting", "running"):
        pid = f" pid {data['pid']}" if data.get("pid") else ""
        return f"{name} {state}{pid}{attempt}", ""
    if state in ("ended", "lost"):
        outcome = data.get("outcome") or state
        if outcome in ("succeeded", "stopped"):
            why = f": {reason}" if reason else ""
            return f"{name} {outcome}{why}{attempt}", "green" if outcome == "succeeded" else ""
        how = data.get("outcome") or "ended", data.get("exit_code"), data.get("signal"), reason
        return Death(name, None, *how).text + attempt, "red"
    if state == "pending" and reason:
        return f"{name} {reason}{attempt}", "yellow"
    return (f"{name} {state}", "") if verbose else _NOTHING


def _describe_run(event: Event, data: RunFields, verbose: bool) -> _TextAndStyle:
    state, cause = data.get("state", ""), data.get("cause")
    text = f"run {event.run} {state}" if event.run else f"run {state}"
    return (f"{text}: {cause}" if cause else text), _STATE_STYLE.get(state, "")


def _describe_note(event: Event, data: NoteFields, verbose: bool) -> _TextAndStyle:
    level, text = data.get("level", "info"), data.get("text", "")
    if level == "detail":
        return (text, "dim") if verbose else _NOTHING
    return (text if level == "info" else f"{level}: {text}"), _LEVEL_STYLE.get(level, "")


# The argument of type Any is the event's data, whose type depends on the kind of event.
_FORMATTERS: dict[str, Callable[[Event, Any, bool], _TextAndStyle]] = {
    "step": _describe_step,
    "host": _describe_host,
    "transfer": _describe_transfer,
    "broadcast": _describe_broadcast,
    "task": _describe_task,
    "run": _describe_run,
    "note": _describe_note,
}
