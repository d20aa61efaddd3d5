"""Locks that end with their process: flock on a file of their own."""

from __future__ import annotations

import fcntl
import os
import time

from tfdeploy.agent.annotations import Optional

_TIMEOUT_S = 0.05
_READERS_TIMEOUT_S = 5.0


class FileLock:
    """A lock on a file, from `acquire` until `release`, `remove`, or the death of the process.

    A holder may remove the file. Whoever locks a file therefore checks that it still has its name.
    As a context it releases the lock at the end; it does not acquire it.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.descriptor: Optional[int] = None

    def acquire(self, timeout_s: float = _TIMEOUT_S) -> bool:
        """Return false if another process held the lock for that long.

        `is_locked` in another process is waited for in any case: it holds the lock for
        microseconds, on a busy host for longer. Raises OSError.
        """
        begun = time.monotonic()
        while True:
            self.descriptor = self._open()
            try:
                if self._try(fcntl.LOCK_EX):
                    if self.is_held():
                        return True
                    self.release()
                    continue
                # Possible beside `is_locked`, not beside a holder.
                is_only_read = self._try(fcntl.LOCK_SH)
            except OSError as error:
                self.release()
                error.filename = self.path
                raise
            self.release()
            waited = time.monotonic() - begun
            if waited >= (max(timeout_s, _READERS_TIMEOUT_S) if is_only_read else timeout_s):
                return False
            time.sleep(min(0.05, 0.002 + waited / 20))

    def is_held(self) -> bool:
        """Return true if this object holds the lock and the file still has its name."""
        try:
            return self.descriptor is not None and os.path.samestat(
                os.fstat(self.descriptor), os.stat(self.path)
            )
        except OSError:
            return False

    def write(self, content: bytes) -> None:
        """Replace the content of the file, for example by who holds it."""
        assert self.descriptor is not None
        os.ftruncate(self.descriptor, 0)
        os.pwrite(self.descriptor, content, 0)

    def release(self) -> None:
        """Release the lock, also one that a child process has inherited. Without it: nothing."""
        descriptor, self.descriptor = self.descriptor, None
        if descriptor is not None:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_UN)
            except OSError:
                pass  # a filesystem without locks
            os.close(descriptor)

    def remove(self) -> None:
        """Remove the file while it is locked, so that no other process can hold its name."""
        try:
            os.unlink(self.path)
        finally:
            self.release()

    def __enter__(self) -> FileLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def _open(self) -> int:
        return os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)

    def _try(self, kind: int) -> bool:
        assert self.descriptor is not None
        try:
            fcntl.flock(self.descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def is_locked(path: str) -> bool:
    """Whether a living process holds that lock. Creates nothing; the disk may be read-only by
    now."""
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
