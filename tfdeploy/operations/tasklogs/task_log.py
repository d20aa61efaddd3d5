"""Read the log of one task from its host, piece by piece.

The host keeps no state between two pieces: each request contains the offset at which the last piece
ended.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from tfdeploy.errors import BadAnswer, HostUnreachable
from tfdeploy.model.answers.runs import LOGS, LogEnd, LogPiece
from tfdeploy.model.loglines import Batch, LogLine, lines_of
from tfdeploy.model.plan import Plan
from tfdeploy.operations.tasklogs.split_lines import LineSplitter
from tfdeploy.transport.protocols import AgentChannel, Stream

PULL_BYTES = 1 << 20  # size of one piece
# In the size of a piece, each of its parts counts as this many bytes more than its length.
ITEM_BYTES = 100
SILENCE_S = 60.0  # the longest pause that a host may make while a log is read but not followed
PIECE_S = 240.0  # time limit for one piece
LogPart = tuple[LogPiece, bytes]
LogStream = Stream[LogPiece, LogEnd]


@dataclass(frozen=True)
class LogQuery:
    """The lines that a reader wants.

    `since` and `until` are UTC seconds, both included. `last`: only the last so many of the wanted
    lines of each task; None means all. `within_s`: the time limit for one task's log. `attempts`:
    {task: its wanted attempt}; None means all attempts.

    `grep`: only lines that match one of these patterns, and `context` lines before and after each
    match. `gaps`: show a separator line between two groups of such lines. `exclude`: no lines that
    match one of these patterns. For `grep` and `exclude`, a traceback counts as one line. `errors`:
    only tracebacks and lines that report an error.
    """

    tasks: tuple[str, ...]
    since: float | None = None
    last: int | None = None
    grep: tuple[re.Pattern[bytes], ...] = ()
    within_s: float | None = None
    until: float | None = None
    exclude: tuple[re.Pattern[bytes], ...] = ()
    context: int = 0
    gaps: bool = False
    attempts: Mapping[str, int] | None = None
    stream: Literal["out", "err"] | None = None
    errors: bool = False

    @property
    def filters_locally(self) -> bool:
        """Return whether this machine filters the lines that a host sends.

        If it does, the host cannot select the `last` lines, because it does not know which lines
        this machine drops.
        """
        return (
            bool(self.grep or self.exclude or self.stream or self.errors)
            or self.until is not None
            or self.attempts is not None
        )


class TaskLog:
    """The log of one task, read in pieces. A piece begins where the last piece ended."""

    def __init__(self, plan: Plan, task: str, host: str, query: LogQuery) -> None:
        self.plan, self.task, self.host, self.query = plan, task, host, query
        self.splitter = LineSplitter(task, host)
        self.cursor: int | None = None  # offset of the next byte; None: nothing is read yet
        self.ended = False
        # True if the host lost its processes of the run, for example by a reboot: see
        # watch/resume.py.
        self.has_lost_processes = False
        self.rotated_bytes = 0
        self.followed = False  # whether the last request also asked to follow the log
        self._give_up: float | None = None

    def request_piece(self, agent: AgentChannel, *, follow: bool) -> LogStream:
        """Request the next piece."""
        args: dict[str, object] = {
            **self.plan.run_args,
            "tasks": [self.task],
            "follow": follow,
            "limit_bytes": PULL_BYTES,
        }
        self.followed = follow
        if self._give_up is None and self.query.within_s is not None:
            self._give_up = time.monotonic() + self.query.within_s
        if self.cursor is not None:
            args["cursors"] = {self.task: self.cursor}
        elif self.query.last is not None and not self.query.filters_locally:
            args["last"] = self.query.last
        elif self.query.since is not None:
            args["since"] = self.query.since
        return agent.stream(LOGS, args, silence_s=None if follow else SILENCE_S)

    def receive_parts(self, stream: LogStream) -> Iterator[LogPart]:
        """Yield the parts of the requested piece as they arrive.

        The next piece may be requested only after the last part of this piece has been received.
        Raises BadAnswer for an invalid part, and HostUnreachable for a slow host.
        """
        received, began = 0, time.monotonic()
        try:
            for item, blob in stream:
                # The host may send each line of a followed log as a separate part. ITEM_BYTES for
                # each line would be too much, so only the contents are counted.
                received += len(blob) if self.followed else len(blob) + ITEM_BYTES
                if (
                    item.task != self.task
                    or item.offset < (self.cursor or 0)
                    or not blob
                    or received > 2 * PULL_BYTES
                ):
                    raise BadAnswer(
                        f"it sent an invalid part of the log of {self.task}", where=self.host
                    )
                if not self.followed:
                    self._refuse_slow_host(began)
                self.rotated_bytes += item.gone
                self.cursor = item.offset + len(blob)
                yield item, blob
        finally:
            stream.close()

    def _refuse_slow_host(self, began: float) -> None:
        now = time.monotonic()
        if now - began > PIECE_S or (self._give_up is not None and now > self._give_up):
            raise HostUnreachable(
                f"the log of {self.task} did not arrive in {now - began:.0f} s", where=self.host
            )

    def split_part(self, part: LogPart) -> Iterator[Batch]:
        """Return all lines of `part`, one item of the host's answer.

        line_filter.py selects the wanted lines later.
        """
        item, blob = part
        return self.splitter.feed(item.offset, item.records, blob)

    def pull_next_piece(self, agent: AgentChannel) -> Iterator[list[LogLine]]:
        """Yield the lines of the next piece of a log that may still grow.

        Sets `ended` once the whole log is read and cannot grow. Sets `has_lost_processes` if the
        process that watches the run on the host (the minder) is gone."""
        stream = self.request_piece(agent, follow=True)
        moved = self.has_lost_processes = False
        for part in self.receive_parts(stream):
            moved = True
            yield from map(lines_of, self.split_part(part))
        end = stream.value
        if end is not None and end.left:
            self.has_lost_processes = True
        elif end is None or not moved or end.ended:
            self.ended = True
            yield from self.splitter.take_unfinished_lines()
