"""Wait for a condition in tests, and decide when a test does not run."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TypeVar

import pytest

from support.stopwatch import Stopwatch

T = TypeVar("T")
POLL_S = 0.05


def wait_for(
    condition: Callable[[], T], timeout_s: float, what: str, *, poll_s: float = POLL_S
) -> T:
    """Return the first true value of `condition`.

    The test fails with the text `what` and the last value if this takes longer than `timeout_s`, as
    measured by a Stopwatch. The checks take at most a tenth of the time (a quarter if one check is
    slow), because a check that starts a program takes CPU time from the process for which the test
    waits.
    """
    watch = Stopwatch()
    while True:
        looked = time.monotonic()
        if value := condition():
            return value
        now = time.monotonic()
        if watch.seconds > timeout_s:
            raise AssertionError(f"not within {timeout_s:g} s: {what} (last: {value!r})")
        took = now - looked
        time.sleep(max(poll_s, 3 * took, min(9 * took, 1.0)))


def in_ci() -> bool:
    return os.environ.get("CI", "").lower() not in ("", "0", "false")


# The mark for tests that take long and check only what other tests check too. Such tests run only
# in CI or on request.
every = pytest.mark.skipif(
    not (in_ci() or os.environ.get("TFDEPLOY_TEST_ALL")),
    reason="TFDEPLOY_TEST_ALL=1 runs all of them",
)
