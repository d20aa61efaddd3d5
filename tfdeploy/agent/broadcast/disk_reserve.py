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
        self._unchecked = CHECK_BYTES  # bytes reserved since the free space was last checked

    def check_space(self, new_bytes: int) -> None:
        """Check that `new_bytes` bytes may be written; call this before every write. Raises OSError
        (ENOSPC) if too few bytes would stay free. Reads the free space once per CHECK_BYTES."""
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
                "only the %d bytes that `reserve` keeps free are left" % self._reserve,
                self._folder,
            )
