"""Waits until something changes in folders: by inotify, or for a moment where there is none (no ctypes, no watches left).

Followers sleep with it beside a training: twenty looks a second at files that do not change cost more than their lines.
"""

from __future__ import annotations

import os
import select
import threading
import time

from tfdeploy.agent.annotations import Optional, Sequence

WRITTEN, PLACED = 0x2, 0x80 | 0x100  # IN_MODIFY; IN_MOVED_TO and IN_CREATE
POLL_S = 0.05  # without inotify; and with it the least between two awakenings: news that come together go out together
SLICE_S = 0.5  # at most, for what no event tells: a cancellation, a disk whose kernel tells nothing
_NONBLOCK_CLOEXEC = os.O_NONBLOCK | os.O_CLOEXEC


class Watcher:
    """Begins with the first wait: who only looks once pays nothing."""

    def __init__(self, folders: Sequence[str], mask: int) -> None:
        self._folders, self._mask = folders, mask
        self._descriptor: Optional[int] = None
        self._poll: Optional[select.poll] = None
        self._awoke = 0.0

    def wait(self, cancelled: threading.Event) -> None:
        """Until there is news since the last return, or for SLICE_S: by then a cancellation is noticed too. The first time not
        at all: the caller has not looked since we began."""
        if self._poll is None:
            self._begin()
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

    def _begin(self) -> None:
        self._poll, self._descriptor = select.poll(), _watch(self._folders, self._mask)
        if self._descriptor is not None:
            self._poll.register(self._descriptor, select.POLLIN)

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _watch(folders: Sequence[str], mask: int) -> Optional[int]:
    """A descriptor that becomes readable; None: not all of them can be watched."""
    try:
        import ctypes

        library = ctypes.CDLL(None, use_errno=True)
        descriptor: int = library.inotify_init1(_NONBLOCK_CLOEXEC)
    except (ImportError, OSError, AttributeError):
        return None
    if descriptor < 0:
        return None
    for folder in folders:
        if library.inotify_add_watch(descriptor, os.fsencode(folder), mask) < 0:
            os.close(descriptor)
            return None
    return descriptor
