"""Keep space free on a disk that a broadcast fills."""

from __future__ import annotations

import errno
import threading

from tfdeploy.agent.host.disk import free_space

LOOK_BYTES = 16 << 20  # written between two looks at the disk


class DiskReserve:
    """`reserve`: bytes that stay free on the disk of `folder`; 0: only a full disk ends the
    writing."""

    def __init__(self, folder: str, reserve: int) -> None:
        self._folder, self._reserve = folder, reserve
        self._lock = threading.Lock()
        self._unlooked = LOOK_BYTES  # bytes that were taken since the last look

    def reserve(self, count: int) -> None:
        """Raise OSError (ENOSPC) if `count` more bytes are more than what is free besides the
        reserve."""
        if not self._reserve:
            return
        with self._lock:
            self._unlooked += count
            if self._unlooked < LOOK_BYTES:
                return
            self._unlooked = 0
        if free_space(self._folder).free_bytes - LOOK_BYTES < self._reserve:
            raise OSError(
                errno.ENOSPC,
                "only the %d bytes of `reserve` are left" % self._reserve,
                self._folder,
            )
