"""Keep the newest lines of every task for the dashboard, in bounded memory. If a task writes much,
only lines of the same task are evicted.

Text is kept as received (cut to KEPT_CHARS characters) and sanitised when it is shown.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tfdeploy.model.loglines import last_progress_state

# The maximum number of lines that are kept of a task.
PER_TASK = 1000
# The maximum number of characters that are kept of a line.
KEPT_CHARS = 4096
# In the log, tfdeploy's own messages have this name in place of a task's name.
OURS = "tfdeploy"
# A task gets its share of the log's rows if its last line is younger than this many seconds.
RECENT_S = 10.0


class BufferedLine(NamedTuple):
    """A line of the log. `number`: the position of the line among all lines, in the order of
    arrival. `style` and `about_task` are only for tfdeploy's own messages: the style, and the task
    that the message concerns."""

    number: int
    task: str
    host: str
    text: str
    style: str = ""
    about_task: str = ""


class LogBuffer:
    """The newest lines of every task. The buffer is not thread-safe: only the dashboard's thread
    adds and reads lines."""

    def __init__(self, per_task: int = PER_TASK) -> None:
        # How many lines have arrived, whether they are still kept or not.
        self.count = 0
        # Tests whether a text passes the filter. If None, every line passes.
        self._matches: Callable[[str], object] | None = None
        self._per_task = per_task
        self._all: dict[str, deque[BufferedLine]] = {}
        self._matching: dict[str, deque[BufferedLine]] = self._all
        self._ticks: deque[tuple[float, int]] = deque()
        self._filter = "", True
        # The tasks whose lines are shown, or None to show the lines of all tasks.
        self.chosen: frozenset[str] | None = None

    def add(self, task: str, host: str, text: str, style: str = "", about: str = "") -> None:
        if len(text) > KEPT_CHARS:
            text = last_progress_state(text)[:KEPT_CHARS]
        self.count += 1
        line = BufferedLine(self.count, task, host, text, style, about)
        if task not in self._all:
            self._all[task] = deque(maxlen=self._per_task)
        self._all[task].append(line)
        if self._matches and self._matches(text):
            self._matching.setdefault(task, deque(maxlen=self._per_task)).append(line)

    def add_many(self, task: str, host: str, texts: Sequence[str], arrived_count: int) -> None:
        """Add `arrived_count` lines of a task. `texts`: the newest of these lines. The other lines
        are only counted, because they would be evicted at once."""
        self.count += arrived_count - len(texts)
        for text in texts:
            self.add(task, host, text)

    def set_filter(
        self, text: str, finds: Callable[[str], object] | None, chosen: frozenset[str] | None
    ) -> bool:
        """Show only the lines of the tasks in `chosen` that pass the test `finds`. If `chosen` is
        None, all tasks are chosen. If `finds` is None, all lines pass.

        `text`: the filter as typed. If the text has changed, all kept lines are filtered again.
        Return True if the filter or the chosen tasks have changed."""
        key = text, finds is None
        if (key, chosen) == (self._filter, self.chosen):
            return False
        if key != self._filter:
            self._filter, self._matches = key, finds
            self._matching = self._all
            if finds:
                self._matching = {
                    task: deque((line for line in ring if finds(line.text)), maxlen=self._per_task)
                    for task, ring in self._all.items()
                }
        self.chosen = chosen
        return True

    def record_arrivals(self, clock: float) -> None:
        """Record how many lines have arrived up to the time `clock` (seconds). `tail` and
        `lines_per_s` use these records."""
        self._ticks.append((clock, self.count))
        while clock - self._ticks[0][0] > RECENT_S:
            self._ticks.popleft()

    @property
    def lines_per_s(self) -> float:
        """Return how many lines per second have arrived in the last RECENT_S seconds."""
        if len(self._ticks) < 2:
            return 0.0
        (first, low), (last, high) = self._ticks[0], self._ticks[-1]
        return (high - low) / (last - first) if last > first else 0.0

    @property
    def dropped_lines(self) -> int:
        """Return how many lines have arrived and are no longer kept."""
        return self.count - self.count_kept()

    def tail(self, max_rows: int, task: str | None = None) -> list[BufferedLine]:
        """Return the newest lines of `task`, at most `max_rows`, the oldest first.

        If `task` is None, return the newest lines of all tasks. Each task with a line in the last
        RECENT_S seconds then gets a share of the rows, so that tasks that write much do not crowd
        out the others."""
        rings = self._matching_rings(task)
        newest = [_last_lines(ring, max_rows) for ring in rings]
        if task is not None:
            return newest[0] if newest else []
        kept = self._recent_shares(newest, max_rows)
        numbers = {line.number for line in kept}
        others = [line for lines in newest for line in lines if line.number not in numbers]
        others.sort(reverse=True)
        return sorted([*kept, *others[: max_rows - len(kept)]])

    def all_lines(self, task: str | None = None) -> list[BufferedLine]:
        """Return all kept lines of `task` that pass the filter, the oldest first. If `task` is
        None, return those of all tasks."""
        return sorted(line for ring in self._matching_rings(task) for line in ring)

    def count_kept(self, task: str | None = None) -> int:
        """Return how many lines of `task` are kept, whether they pass the filter or not. If `task`
        is None, count the lines of all tasks."""
        return sum(len(ring) for name, ring in self._all.items() if task in (None, name))

    def last_texts_of(self, task: str, max_lines: int) -> list[str]:
        """Return the last lines of a task, whether they pass the filter or not."""
        return [line.text for line in _last_lines(self._all.get(task, deque()), max_lines)]

    def _matching_rings(self, task: str | None) -> list[deque[BufferedLine]]:
        if task is not None:
            return [self._matching[task]] if task in self._matching else []
        chosen = self.chosen
        if chosen is None:
            return list(self._matching.values())
        own_messages = (line for line in self._matching.get(OURS, ()) if line.about_task in chosen)
        rings = [ring for task, ring in self._matching.items() if task in chosen]
        return [*rings, deque(own_messages)]

    def _recent_shares(
        self, newest: list[list[BufferedLine]], row_count: int
    ) -> list[BufferedLine]:
        since = self._ticks[0][1] if self._ticks else 0
        recent = [
            fresh for lines in newest if (fresh := [line for line in lines if line.number > since])
        ]
        recent.sort(key=lambda lines: lines[-1].number, reverse=True)
        share = row_count // max(1, min(row_count, len(recent)))
        return [line for lines in recent[:row_count] for line in lines[-share:]]


def _last_lines(ring: deque[BufferedLine], line_count: int) -> list[BufferedLine]:
    if line_count >= len(ring):
        return list(ring)
    return [ring[i] for i in range(-line_count, 0)] if line_count > 0 else []
