"""Flush received content to the disk while more content arrives, so that the final flush takes
little time."""

from __future__ import annotations

import os
import queue

from tfdeploy.agent.annotations import Dict, Optional
from tfdeploy.agent.host.threads import start_thread

EVERY_BYTES = 32 << 20  # A file is flushed each time this many bytes have been written to it.
SMALL_BYTES = 1 << 20  # Files smaller than this are flushed only at the end, all together.


class WriteBack:
    """Flushes files on its own thread, which ends with `close`. Errors are ignored here, because
    the final flush reports them."""

    def __init__(self) -> None:
        self._due: "queue.SimpleQueue[Optional[bytes]]" = queue.SimpleQueue()
        self._unflushed: Dict[bytes, int] = {}
        start_thread(self._flush_until_closed)

    def note_write(
        self, path: bytes, byte_count: int, *, is_complete: bool, file_size: int
    ) -> None:
        if file_size < SMALL_BYTES:
            return
        total = self._unflushed.get(path, 0) + byte_count
        due = is_complete or total >= EVERY_BYTES
        self._unflushed[path] = 0 if due else total
        if due:
            self._due.put(path)

    def close(self) -> None:
        self._due.put(None)

    def _flush_until_closed(self) -> None:
        while True:
            path = self._due.get()
            if path is None:
                return
            try:
                opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
            except OSError:
                continue
            try:
                os.fdatasync(opened)
            except OSError:
                pass
            finally:
                os.close(opened)
