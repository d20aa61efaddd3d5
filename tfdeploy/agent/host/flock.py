"""Lock files with flock. When a process ends, the kernel releases its locks."""

from __future__ import annotations

import fcntl
import os
import time

from tfdeploy.agent.annotations import Optional

_TIMEOUT_S = 0.05
# Limits how long `acquire` waits for other processes that call `is_locked`. Such a process holds
# the lock for a moment.
_READERS_TIMEOUT_S = 5.0


class FileLock:
    """A lock on a file, from `acquire` until `release`, `remove`, or the death of the process.

    The process that holds the lock may remove the file. Therefore `acquire` checks that the locked
    file still exists under its name. A `with` block releases the lock at its end, but does not
    acquire it at its start.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.descriptor: Optional[int] = None

    def acquire(self, timeout_s: float = _TIMEOUT_S) -> bool:
        """Acquire the lock. Return False if another process has held it for `timeout_s` seconds.
        Raises OSError.

        `is_locked` tests a lock by taking it for some microseconds, or longer on a busy host. A
        process that only tests the lock does not count as holding it: `acquire` waits until the
        test is over.
        """
        begun = time.monotonic()
        while True:
            self.descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            try:
                if self._try_lock(fcntl.LOCK_EX):
                    if self.is_held():
                        return True
                    self.release()
                    continue
                # A shared lock can be taken if other processes only test the lock with `is_locked`.
                # It cannot be taken if a process holds the lock.
                is_only_read = self._try_lock(fcntl.LOCK_SH)
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
        """Return True if this object holds the lock and the locked file still exists under its
        name."""
        try:
            return self.descriptor is not None and os.path.samestat(
                os.fstat(self.descriptor), os.stat(self.path)
            )
        except OSError:
            return False

    def write(self, content: bytes) -> None:
        """Replace the content of the locked file, for example with the name of the holder."""
        assert self.descriptor is not None
        os.ftruncate(self.descriptor, 0)
        os.pwrite(self.descriptor, content, 0)

    def release(self) -> None:
        """Release the lock, even if a child process has inherited it. Does nothing if the lock is
        not held."""
        descriptor, self.descriptor = self.descriptor, None
        if descriptor is not None:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_UN)
            except OSError:
                pass  # the file system does not support locks
            os.close(descriptor)

    def remove(self) -> None:
        """Remove the file while it is still locked, so that no other process can lock the same
        file. Then release the lock."""
        try:
            os.unlink(self.path)
        finally:
            self.release()

    def __enter__(self) -> FileLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def _try_lock(self, kind: int) -> bool:
        assert self.descriptor is not None
        try:
            fcntl.flock(self.descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def is_locked(path: str) -> bool:
    """Return True if a living process holds the lock on the file. Creates no file, because the disk
    may be read-only."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except OSError as error:
        # With any other error, the file system does not support locks, so nobody holds a lock.
        return isinstance(error, BlockingIOError)
    finally:
        os.close(descriptor)
