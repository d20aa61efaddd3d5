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

PULL_BYTES = 1 << 20  # one request asks for this many bytes of a log (a piece)
# A host sends a piece in parts. Each part counts as this many bytes more than its content.
ITEM_BYTES = 100
SILENCE_S = 60.0  # longest pause, in seconds, of a host while a log is read but not followed
PIECE_S = 240.0  # time limit for one piece, in seconds
LogPart = tuple[LogPiece, bytes]
LogStream = Stream[LogPiece, LogEnd]


@dataclass(frozen=True)
class LogQuery:
    """The lines that a reader wants.

    `since` and `until` are UTC seconds, both included. `last`: only this many lines of each task,
    counted from the end; None means all. `within_s`: the time limit for one task's log. `attempts`:
    {task: its wanted attempt}; None means all attempts.

    `grep`: only lines that match one of these patterns, and `context` lines before and after each
    match. `gaps`: show a separator line between two groups of lines if lines were left out between
    them. `exclude`: no lines that match one of these patterns. For `grep` and `exclude`, a
    traceback counts as one line. `errors`: only tracebacks and lines that report an error.
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

        In this case, this machine must also select the `last` lines, because the host does not know
        which lines are dropped here.
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
        # True if no process of the run is alive on the host although the run has not ended, for
        # example after a reboot: see watch/resume.py.
        self.has_lost_processes = False
        self.rotated_bytes = 0
        self.followed = False  # True if the last request asked the host to follow the log
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
                # ITEM_BYTES is not added for a followed log: a host may send each of its lines as a
                # separate part, so a correct piece would then seem too large.
                received += len(blob) if self.followed else len(blob) + ITEM_BYTES
                if (
                    item.task != self.task
                    or item.offset < (self.cursor or 0)
                    or not blob
                    or received > 2 * PULL_BYTES
                ):
                    raise BadAnswer(
                        f"the host sent an invalid part of the log of {self.task}", where=self.host
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
        """Yield all lines of `part` (one item of the host's answer).

        The lines are not filtered yet: line_filter.py selects the wanted lines.
        """
        item, blob = part
        return self.splitter.feed(item.offset, item.records, blob)

    def pull_next_piece(self, agent: AgentChannel) -> Iterator[list[LogLine]]:
        """Yield the lines of the next piece of a log that may still grow.

        Sets `ended` to True when the whole log is read and cannot grow any more. Sets
        `has_lost_processes` to True if the process that watches the run on the host (the minder) is
        gone.
        """
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
