"""Select the lines of one task that a LogQuery asks for, and context lines around matches.

A query selects lines by time, attempt, stream, errors and regular expressions. Call filters only in
the main thread: a slow regular expression blocks all threads, and Ctrl-C interrupts a search only
in the main thread. text/user_regexes.py makes the search in a long line interruptible.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING

from tfdeploy.model.loglines import LogLine
from tfdeploy.operations.tasklogs.traceback_selector import TracebackSelector
from tfdeploy.text.row_values import iso_z
from tfdeploy.text.user_regexes import search_interruptibly

if TYPE_CHECKING:
    from tfdeploy.operations.tasklogs.task_log import LogQuery

# This line separates two groups of shown lines if lines were left out between them, as in grep.
GAP = b"--"
# The context lines before a match have at most this many bytes in total, because a single line may
# be one megabyte long.
_MOST_CONTEXT_BYTES = 8 << 20
_BYTES = attrgetter("line")
Patterns = tuple[re.Pattern[bytes], ...]


def filter_batches(
    query: LogQuery, task: str, batches: Iterator[list[LogLine]]
) -> Iterator[list[LogLine]]:
    """Return the wanted lines, batch by batch. If all lines are wanted, return `batches` itself."""
    if not query.filters_locally and query.since is None:
        return batches
    return map(LineFilter(query, task), batches)


class LineFilter:
    """Selects the wanted lines of one task, batch after batch.

    All lines of a batch have the same time, attempt and stream.
    """

    def __init__(self, query: LogQuery, task: str) -> None:
        self._query = query
        self._attempt = None if query.attempts is None else query.attempts.get(task)
        self._matches_grep = _make_any_matcher(query.grep) if query.grep else None
        self._excluded = _make_any_matcher(query.exclude) if query.exclude else None
        self.reset()

    def __call__(self, batch: list[LogLine]) -> list[LogLine]:
        if not batch or not self._is_wanted(batch[0]):
            return []
        if not (self._matches_grep or self._excluded or self._query.errors):
            return batch
        return search_interruptibly(
            max(map(len, map(_BYTES, batch))), lambda: self._select_matching(batch)
        )

    def _select_matching(self, batch: list[LogLine]) -> list[LogLine]:
        if self._matches is not None:
            return self._matches.matching_lines(batch)
        excluded = self._excluded
        return [line for line in batch if not (excluded and excluded(line.line))]

    def reset(self) -> None:
        """Reset the filter. Call this before the log is read from its beginning again."""
        query = self._query
        self._matches = None
        if query.grep or query.errors:
            selector = TracebackSelector(self._matches_grep, self._excluded, errors=query.errors)
            self._matches = _MatchesWithContext(query, selector)

    def _is_wanted(self, line: LogLine) -> bool:
        query = self._query
        return (
            (query.since is None or line.time >= query.since)
            and (query.until is None or line.time <= query.until)
            and self._attempt in (None, line.attempt)
            and query.stream in (None, line.stream)
        )


def _make_any_matcher(patterns: Patterns) -> Callable[[bytes], object]:
    """Return a function that tells whether any of the patterns matches a line."""
    if len(patterns) == 1:
        return patterns[0].search
    return lambda text: any(pattern.search(text) for pattern in patterns)


class _MatchesWithContext:
    """Selects matching lines, and `context` lines before and after them.

    If the query has `gaps`, a separator line GAP stands between two groups of lines. If the query
    also has `errors`, the separator names the attempt and the time, and stands before each group
    and each traceback. A separator belongs to no stream.
    """

    def __init__(self, query: LogQuery, selector: TracebackSelector) -> None:
        self._selector, self._count = selector, query.context
        self._gaps, self._errors = query.gaps, query.errors
        self._before: deque[LogLine] = deque()
        self._before_bytes = 0
        self._after = 0  # this many context lines after the last match must still be shown
        self._skipped = self._shown = False

    def matching_lines(self, batch: list[LogLine]) -> list[LogLine]:
        selector, shown = self._selector, list[LogLine]()
        if not self._count and selector.is_without_tracebacks(batch):
            return [line for line in batch if selector.selects(line.line)]
        for line, selected, begins in chain.from_iterable(map(selector.decide, batch)):
            if selected:
                group = [*self._before, line]
                if self._gaps and self._needs_separator(begins_match=begins):
                    text = b"%s attempt %d, %s" % (
                        GAP,
                        line.attempt,
                        (iso_z(line.time) or "").encode(),
                    )
                    shown.append(
                        group[0]._replace(stream="", line=text if self._errors else GAP, ended=True)
                    )
                shown += group
                self._before.clear()
                self._before_bytes, self._after, self._skipped, self._shown = (
                    0,
                    self._count,
                    False,
                    True,
                )
            elif self._after:
                self._after -= 1
                shown.append(line)
            else:
                self._keep_as_context(line)
        return shown

    def _needs_separator(self, *, begins_match: bool) -> bool:
        if self._errors:
            return begins_match or self._skipped or not self._shown
        return self._count > 0 and self._skipped and self._shown

    def _keep_as_context(self, line: LogLine) -> None:
        self._before.append(line)
        self._before_bytes += len(line.line)
        while len(self._before) > self._count or self._before_bytes > _MOST_CONTEXT_BYTES:
            self._before_bytes -= len(self._before.popleft().line)
            self._skipped = True
