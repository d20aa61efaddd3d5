"""The last lines of a log that arrives in batches."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as some

from tfdeploy.model.loglines import LogLine
from tfdeploy.operations.logs import last_lines


@given(some.lists(some.integers(0, 4), max_size=8), some.integers(0, 10))
def test_the_last_lines_are_the_last_ones_however_they_arrive(sizes: list[int], count: int) -> None:
    numbers = iter(range(100))
    batches = [[LogLine(0.0, "worker:0", "n1", 1, "out", b"%d" % next(numbers)) for _ in range(size)] for size in sizes]
    every = [line for batch in batches for line in batch]
    kept = [line for batch in last_lines(iter(batches), count) for line in batch]
    assert kept == (every[-count:] if count else [])
