"""Keep the configured amount of disk space free while a broadcast writes files to this host."""

from __future__ import annotations

import errno
import threading

from tfdeploy.agent.host.disk import free_space

CHECK_BYTES = 16 << 20  # how many bytes may be written before the free space is checked again


class DiskReserve:
    """Makes sure that `reserve` bytes stay free on the disk that contains `folder`. If `reserve` is
    0, a broadcast may fill the disk."""

    def __init__(self, folder: str, reserve: int) -> None:
        self._folder, self._reserve = folder, reserve
        self._lock = threading.Lock()
        # Bytes that were allowed since the free space was last checked. With this first value, the
        # first call checks the free space.
        self._unchecked = CHECK_BYTES

    def check_space(self, new_bytes: int) -> None:
        """Check that `new_bytes` more bytes may be written. Call this method before every write.
        Raises OSError (ENOSPC) if less than `reserve` would stay free. To save time, the free space
        is read only once for every CHECK_BYTES of new content."""
        if not self._reserve:
            return
        with self._lock:
            self._unchecked += new_bytes
            if self._unchecked < CHECK_BYTES:
                return
            self._unchecked = 0
        if free_space(self._folder).free_bytes - CHECK_BYTES < self._reserve:
            raise OSError(
                errno.ENOSPC,
                "no more may be written: `reserve` keeps the last %d bytes of the disk free"
                % self._reserve,
                self._folder,
            )
