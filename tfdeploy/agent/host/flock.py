"""Locks that end with their process: flock on a file of their own."""

from __future__ import annotations

import fcntl
import os
import time

from tfdeploy.agent.annotations import Optional

_HELD_S, _LOOKED_AT_S = 0.05, 5.0  # how long a lock is tried for: while another process holds it, while others only look


def take_lock(path: str) -> Optional[int]:
    """An open file that holds the lock until it is closed or its process dies; None: another process holds it.

    `is_locked` of another process delays it for microseconds, on a busy host for longer: it waits for that.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    begun = time.monotonic()
    while not _flocked(descriptor, fcntl.LOCK_EX):
        looked_at = _flocked(descriptor, fcntl.LOCK_SH)  # possible beside is_locked, not beside a holder
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        if time.monotonic() - begun >= (_LOOKED_AT_S if looked_at else _HELD_S):
            os.close(descriptor)
            return None
        time.sleep(0.002)
    return descriptor


def _flocked(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_locked(path: str) -> bool:
    """Whether a living process holds that lock. Creates nothing; the disk may be read-only by now."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a filesystem without locks: then no lock is held
        return False
    finally:
        os.close(descriptor)
    return False
