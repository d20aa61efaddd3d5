"""Test the bell, a pipe through which threads wake up the dashboard. From the first ring until the
bell is reset, the pipe is readable, whichever threads have rung it.
"""

from __future__ import annotations

import os
import select
import threading

from tfdeploy.ui.dashboard.bell import WakePipe


def rings(bell: WakePipe, within_s: float = 0.0) -> bool:
    return bool(select.select([bell.fd], [], [], within_s)[0])


def test_bell_rings_until_reset() -> None:
    bell = WakePipe()
    assert not rings(bell)
    # The pipe has no room for 100,000 bytes, so these calls must write fewer bytes than that.
    for _ in range(100_000):
        bell.wake()
    assert rings(bell)
    bell.drain()
    assert not rings(bell)
    bell.wake()
    assert rings(bell)


def test_ring_of_other_thread_wakes_waiting_thread() -> None:
    bell = WakePipe()
    thread = threading.Timer(0.01, bell.wake)
    thread.start()
    assert rings(bell, 10.0)
    thread.join()


def test_bell_closes_its_descriptors() -> None:
    bell = WakePipe()
    fds = (bell.fd, bell._end)
    del bell
    assert not any(
        os.path.exists(f"/proc/self/fd/{fd}") and "pipe" in os.readlink(f"/proc/self/fd/{fd}")
        for fd in fds
    )
