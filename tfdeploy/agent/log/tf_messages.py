"""Distinguish a task's own output from messages that TensorFlow repeats while it waits for other
tasks.

Each call reads only what was added to the log since the last call. If more than READ_BYTES were
added, they are not read, and count as the task's own output.
"""

from __future__ import annotations

import os
import re

from tfdeploy.agent.annotations import Dict, Optional, Tuple
from tfdeploy.agent.log.format import LOG
from tfdeploy.agent.record import NamedTuple

# More new bytes than this are not read. They count as output of the program itself.
READ_BYTES = 1 << 16
# An unfinished line that is longer than this counts as output of the program itself.
_HOLD_BYTES = 4096
_NAMED = re.compile(
    rb"still waiting for response from "
    rb"worker:\s*/job:([A-Za-z0-9_]+)(?:/replica:\d+)?/task:(\d{1,9})",
    re.IGNORECASE,
)
_UNNAMED = re.compile(rb"Waiting for model to be (?:ready|initialized)", re.IGNORECASE)
_ENDS = re.compile(rb"[\r\n\b]+")


class WaitMessages(NamedTuple):
    has_own_output: bool  # whether the task printed anything besides messages that it waits
    waits: Tuple[str, ...] = ()  # the tasks for which the task waits, according to these messages


def parse_wait_messages(text: bytes) -> Tuple[WaitMessages, bytes]:
    """Return (what the complete lines of the text say, the incomplete line at its end)."""
    *lines, unfinished = _ENDS.split(text)
    has_own_output = False
    waits: Dict[str, None] = {}
    for line in lines:
        awaited = _NAMED.search(line)
        if awaited is not None:
            waits["%s:%d" % (awaited.group(1).decode("ascii"), int(awaited.group(2)))] = None
        elif line.strip() and not _UNNAMED.search(line):
            has_own_output = True
    if len(unfinished) > _HOLD_BYTES:
        has_own_output, unfinished = True, b""
    return WaitMessages(has_own_output, tuple(waits)), unfinished


class MessageReader:
    """Reads new messages from one task's log. The first call of `read_new` reads nothing: it only
    remembers where the log ends."""

    def __init__(self, task_dir: str) -> None:
        self._path = os.path.join(task_dir, LOG)
        self._seen: Optional[Tuple[int, int]] = None  # inode and size of the log at the last call
        self._rest = b""

    def read_new(self) -> WaitMessages:
        """Return what was printed since the last call."""
        try:
            about = os.stat(self._path)
        except OSError:
            return WaitMessages(False)
        before, self._seen = self._seen, (about.st_ino, about.st_size)
        if before is None or before == self._seen:
            return WaitMessages(False)
        if before[0] != about.st_ino or not 0 < about.st_size - before[1] <= READ_BYTES:
            self._rest = b""
            return WaitMessages(True)
        held, new = self._rest, self._read(before[1], about.st_size - before[1])
        messages, self._rest = parse_wait_messages(held + new)
        # A line without an end has grown. Messages of TensorFlow do not do this, so the program
        # prints it, for example dots that show its progress.
        grows = bool(held and new) and not _ENDS.search(new)
        return messages._replace(has_own_output=messages.has_own_output or grows)

    def _read(self, offset: int, count: int) -> bytes:
        try:
            with open(self._path, "rb") as log:
                log.seek(offset)
                return log.read(count)
        except OSError:
            return b""
