"""Call one function for many values, on several threads. `concurrent.futures` is not used, because
it would load the `logging` module."""

from __future__ import annotations

import threading
import time

from tfdeploy.agent.annotations import Any, Callable, Iterable
from tfdeploy.agent.host.threads import start_thread

MOST_THREADS = 64


def start_calls(
    function: Callable[[Any], object],
    values: Iterable[Any],
    timeout_s: float = threading.TIMEOUT_MAX,
    most_threads: int = MOST_THREADS,
) -> Callable[[], None]:
    """Start to call `function(value)` for each value. Return a function that waits until all calls
    have ended, or until `timeout_s` seconds have passed since the start of the calls."""
    waiting, deadline = list(values), time.monotonic() + timeout_s

    def work() -> None:
        while waiting and time.monotonic() < deadline:
            try:
                value = waiting.pop()
            except IndexError:  # another thread has taken the last of the values
                return
            function(value)

    threads = [start_thread(work) for _ in range(min(most_threads, len(waiting)))]

    def wait() -> None:
        for thread in threads:
            thread.join(min(max(0.0, deadline - time.monotonic()), threading.TIMEOUT_MAX))

    return wait


def call_for_each(
    function: Callable[[Any], object], values: Iterable[Any], timeout_s: float
) -> None:
    """Call `function(value)` for each value. Return after at most `timeout_s` seconds, even if some
    calls have not ended."""
    start_calls(function, values, timeout_s)()
