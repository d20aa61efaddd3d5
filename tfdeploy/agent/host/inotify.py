"""Wait until something changes in folders. This uses inotify, or polling if inotify is not
available (no ctypes, or no watches left).

Processes that follow logs use this module on hosts that train. Without inotify, they would read
unchanged files twenty times a second, which costs more CPU time than sending the lines.
"""

from __future__ import annotations

import os
import select
import threading
import time

from tfdeploy.agent.annotations import Optional, Sequence

WRITTEN, PLACED = 0x2, 0x80 | 0x100  # events of inotify: IN_MODIFY; IN_MOVED_TO or IN_CREATE
# Without inotify: the pause between two checks. With inotify: the shortest time between two returns
# of `wait`, so that several changes are handled together.
POLL_S = 0.05
# The longest time that `wait` waits for a change, in seconds. Neither a cancellation nor a change
# on a network disk ends the wait earlier.
SLICE_S = 0.5


class Watcher:
    """Waits for changes in folders. The first call of `wait` begins to watch them, so a Watcher
    that is never used costs nothing."""

    def __init__(self, folders: Sequence[str], mask: int) -> None:
        self._folders, self._mask = folders, mask
        self._descriptor: Optional[int] = None
        self._poll: Optional[select.poll] = None
        self._awoke = 0.0

    def wait(self, cancelled: threading.Event) -> None:
        """Wait until something has changed since the last return, but at most SLICE_S seconds. The
        first call begins to watch the folders and returns at once. The caller then reads the files
        once, to see the changes from the time before."""
        if self._poll is None:
            self._poll, self._descriptor = select.poll(), _open_watch(self._folders, self._mask)
            if self._descriptor is not None:
                self._poll.register(self._descriptor, select.POLLIN)
            return
        if self._descriptor is None:
            cancelled.wait(POLL_S)
            return
        early_s = self._awoke + POLL_S - time.monotonic()
        if early_s <= 0 or not cancelled.wait(early_s):
            self._poll.poll(SLICE_S * 1000)
        try:
            os.read(self._descriptor, 65536)
        except BlockingIOError:
            pass
        self._awoke = time.monotonic()

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _open_watch(folders: Sequence[str], mask: int) -> Optional[int]:
    """Return a descriptor that becomes readable after a change. Return None if any of the folders
    cannot be watched."""
    try:
        import ctypes

        library = ctypes.CDLL(None, use_errno=True)
        descriptor: int = library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    except (ImportError, OSError, AttributeError):
        return None
    if descriptor < 0:
        return None
    for folder in folders:
        if library.inotify_add_watch(descriptor, os.fsencode(folder), mask) < 0:
            os.close(descriptor)
            return None
    return descriptor
