"""Locks that end with their process: flock on a file of their own."""

from __future__ import annotations

import fcntl
import os
import time

from tfdeploy.agent.annotations import Optional

_HELD_S, _LOOKED_AT_S = 0.05, 5.0  # how long a lock is tried for, by who is in the way


def take_lock(path: str) -> Optional[int]:
    """An open file that holds the lock until it is closed or its process dies; None: somebody else holds it.

    Who only looks (is_locked) is in the way for microseconds, on a busy host for longer: that is waited out.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    begun = time.monotonic()
    while not _flocked(descriptor, fcntl.LOCK_EX):
        looked_at = _flocked(descriptor, fcntl.LOCK_SH)  # beside those who look
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
