"""Test how the last lines of a log are found: among batches of lines, and while the log grows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from tfdeploy.model.answers.runs import LogEnd, LogPiece
from tfdeploy.model.loglines import LogLine
from tfdeploy.operations.tasklogs.stored_lines import last_lines, stored_lines
from tfdeploy.operations.tasklogs.task_log import PULL_BYTES, LogQuery
from tfdeploy.text.typed import StreamingVerb


@given(some.lists(some.integers(0, 4), max_size=8), some.integers(0, 10))
def test_last_lines_do_not_depend_on_batches(sizes: list[int], count: int) -> None:
    numbers = iter(range(100))
    batches = [
        [
            LogLine(
                time=0.0,
                task="worker:0",
                host="n1",
                attempt=1,
                stream="out",
                line=b"%d" % next(numbers),
            )
            for _ in range(size)
        ]
        for size in sizes
    ]
    every = [line for batch in batches for line in batch]
    kept = [line for batch in last_lines(iter(batches), count) for line in batch]
    assert kept == (every[-count:] if count else [])


def test_last_lines_do_not_begin_with_gap() -> None:
    line = LogLine(time=0.0, task="worker:0", host="n1", attempt=1, stream="out", line=b"1")
    gap, two = line._replace(stream="", line=b"--"), line._replace(line=b"2")
    assert last_lines(iter([[line], [gap, two]]), 2) == [[two]]
    assert last_lines(iter([[line], [gap, two]]), 3) == [[line], [gap, two]]


class Growing:
    """A host with one task.

    `grows`: how many more bytes the task prints between two calls of the agent. If `says_ends` is
    False, the host has an old agent, which does not report the length of a log.
    """

    def __init__(self, length: int, grows: int, says_ends: bool) -> None:
        self.length, self.grows, self.says_ends, self.asked = length, grows, says_ends, 0
        self.host = SimpleNamespace(name="n1")

    def agent(self) -> Growing:
        return self

    def stream(
        self,
        verb: StreamingVerb[LogPiece, LogEnd],
        args: dict[str, Any],
        *,
        silence_s: float | None = None,
    ) -> Any:
        self.asked += 1
        assert self.asked < 100, "the log is read endlessly"
        start = args.get("cursors", {}).get("worker:0", 0)
        end = min(self.length, start + PULL_BYTES)
        piece = LogPiece(task="worker:0", offset=start, records=[(0, 1.0, 1, 1)])
        items = [(piece, b"x" * (end - start - 1) + b"\n")] if end > start else []
        ends = {"worker:0": self.length} if self.says_ends else {}
        self.length += self.grows
        return Stream(items, LogEnd(ended=False, left=False, ends=ends))


class Stream(list[Any]):
    def __init__(self, items: list[Any], value: LogEnd) -> None:
        super().__init__(items)
        self.value = value

    def close(self) -> None:
        pass


@pytest.mark.parametrize(("grows", "says_ends"), [(10, True), (2 * PULL_BYTES, True), (10, False)])
def test_reading_of_growing_log_ends(grows: int, says_ends: bool) -> None:
    growing = Growing(3 * PULL_BYTES + 5, grows, says_ends)
    fleet: Any = SimpleNamespace(connect=lambda hosts: {"n1": growing})
    plan: Any = SimpleNamespace(
        run="r1",
        run_args={"run": "r1", "job": "j"},
        job="job",
        logs_max_bytes=1 << 30,
        tasks=[SimpleNamespace(task="worker:0", host="n1")],
        hosts=[SimpleNamespace(host="n1", ssh={"name": "n1", "address": "192.0.2.1"})],
    )
    lines = list(stored_lines(fleet, plan, LogQuery(tasks=("worker:0",)), {}))
    assert 3 * PULL_BYTES < sum(len(line.line) + 1 for line in lines) <= 4 * PULL_BYTES
