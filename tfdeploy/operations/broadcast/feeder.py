"""Send pieces of a broadcast from this machine to one host, over the host's SSH session.

This machine sends to the first host of each chain of hosts, and to hosts that no other host can
reach.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from tfdeploy.agent import pieces
from tfdeploy.agent.pieces import Piece
from tfdeploy.machine.threads import start_thread
from tfdeploy.model.answers.files import BROADCAST_LEAVES, BROADCAST_PUT
from tfdeploy.operations.broadcast.bitmaps import unpack_bitmap
from tfdeploy.operations.broadcast.source import BroadcastSource
from tfdeploy.transport.protocols import AgentChannel

AT_ONCE = 8  # at most this many pieces are on their way at the same time: 2 MiB in all
PUT_S = 120.0  # timeout in seconds of one call to the host
_CHECK_INTERVAL_S = 0.2  # longest wait, in seconds, before `_closed` is checked again


class PieceFeeder:
    """Sends pieces to one host, on threads of its own that start immediately.

    `sent(bytes)` is called for each piece that has arrived. `failed(error)` is called at most once.
    """

    def __init__(
        self,
        id_: str,
        host: str,
        agent: AgentChannel,
        source: BroadcastSource,
        sent: Callable[[int], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self._id, self._host, self._agent, self._source = id_, host, agent, source
        self._sent, self._failed = sent, failed
        self._lock = threading.Condition()
        self._ready: deque[tuple[int, int, Piece]] = deque()  # wanted pieces that are not sent yet
        self._closed = False
        for work in (self._ask_wanted_pieces, *[self._send_pieces] * AT_ONCE):
            start_thread(self._run_and_report_error, work, name="feed")

    def close(self) -> None:
        """Stop sending."""
        with self._lock:
            self._closed = True
            self._lock.notify_all()

    def _run_and_report_error(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - `failed` reports it
            with self._lock:
                first, self._closed = not self._closed, True
                self._lock.notify_all()
            if first:
                self._failed(error)

    def _ask_wanted_pieces(self) -> None:
        """Ask for each segment which pieces the host wants, and queue them for sending.

        Pauses while more pieces are queued than one segment has.
        """
        for segment in range(self._source.cut.segment_count):
            leaves = None
            while leaves is None:
                if self._closed:
                    return
                leaves = self._source.wait_for_hashes(segment, _CHECK_INTERVAL_S)
            args = {"id": self._id, "segment": segment}
            answer = self._agent.call(BROADCAST_LEAVES, args, blob=leaves, timeout_s=PUT_S)
            wanted = pieces.bitmap_from(unpack_bitmap(answer.wanted, self._host))
            wanted &= (1 << self._source.cut.count_pieces(segment)) - 1
            extents = self._source.cut.segment(segment)
            with self._lock:
                self._ready.extend(
                    (segment, index, extents[index]) for index in pieces.marked_numbers(wanted)
                )
                self._lock.notify_all()
                while len(self._ready) > pieces.SEGMENT and not self._closed:
                    self._lock.wait(_CHECK_INTERVAL_S)

    def _send_pieces(self) -> None:
        """Send wanted pieces one after another, until the feeder is closed."""
        while True:
            with self._lock:
                while not self._ready and not self._closed:
                    self._lock.wait()
                if self._closed:
                    return
                segment, index, piece = self._ready.popleft()
                if len(self._ready) == pieces.SEGMENT:
                    self._lock.notify_all()
            content = self._source.read_checked_piece(segment, index, piece)
            args = {"id": self._id, "segment": segment, "index": index}
            self._agent.call(BROADCAST_PUT, args, blob=content, timeout_s=PUT_S)
            self._sent(len(content))
