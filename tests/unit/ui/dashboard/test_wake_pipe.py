"""Test the pipe through which threads wake the dashboard. From the first call of `wake` until
`drain`, the pipe is readable, whichever thread has called `wake`.
"""

from __future__ import annotations

import os
import select
import threading

from tfdeploy.ui.dashboard.wake_pipe import WakePipe


def is_woken(pipe: WakePipe, within_s: float = 0.0) -> bool:
    return bool(select.select([pipe.fd], [], [], within_s)[0])


def test_pipe_is_readable_until_drained() -> None:
    pipe = WakePipe()
    assert not is_woken(pipe)
    # The pipe has no room for 100,000 bytes, so these calls must write fewer bytes than that.
    for _ in range(100_000):
        pipe.wake()
    assert is_woken(pipe)
    pipe.drain()
    assert not is_woken(pipe)
    pipe.wake()
    assert is_woken(pipe)


def test_call_of_other_thread_wakes_waiting_thread() -> None:
    pipe = WakePipe()
    thread = threading.Timer(0.01, pipe.wake)
    thread.start()
    assert is_woken(pipe, 10.0)
    thread.join()


def test_pipe_closes_its_descriptors() -> None:
    pipe = WakePipe()
    fds = (pipe.fd, pipe._end)
    del pipe
    assert not any(
        os.path.exists(f"/proc/self/fd/{fd}") and "pipe" in os.readlink(f"/proc/self/fd/{fd}")
        for fd in fds
    )
