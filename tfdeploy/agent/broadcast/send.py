"""Send the files of a broadcast to a child, which is a host that receives from this one. First send
the hashes of each segment, then the pieces that the child requests. Each piece is sent as soon as
this host has it.

Each child has its own thread, so that a slow child does not delay the others. A child does not
request pieces that it already has.
"""

from __future__ import annotations

import json
import os
import select
import ssl

from tfdeploy.agent import pieces
from tfdeploy.agent.annotations import Any, Dict, List
from tfdeploy.agent.broadcast import messages
from tfdeploy.agent.broadcast.holdings import Holdings
from tfdeploy.agent.limit import RateLimit
from tfdeploy.agent.mesh import tls

HELLO_TIMEOUT_S = 5.0  # the longest wait for the first line of a child (a host that receives)
# A child that accepts no data for this time is disconnected. It may connect again.
SEND_TIMEOUT_S = 20.0
_MAX_WAIT_S = 1.0  # the longest wait for a request or for new pieces


class Sender:
    def __init__(self, holdings: Holdings, channel: ssl.SSLSocket, limit: RateLimit) -> None:
        self._holdings, self._channel, self._limit = holdings, channel, limit
        # Number of a segment -> bitmap of the pieces that the child has requested.
        self._wanted: Dict[int, int] = {}
        # How many segments' hashes were sent to the child. Hashes are sent in the order of
        # holdings.arrived_segments.
        self._announced = 0
        self._wake_reading, self._wake_writing = os.pipe()
        os.set_blocking(self._wake_writing, False)

    def run(self, id_: str) -> None:
        """Serve the child until it closes the connection or the broadcast ends. Raises OSError,
        ValueError, EOFError."""
        try:
            hello = json.loads(
                tls.read_line(self._channel, messages.HELLO_BYTES, HELLO_TIMEOUT_S, 1)
            )
            if not isinstance(hello, dict) or hello.get("broadcast") != id_:
                raise messages.InvalidMessage("the connected host asks for another broadcast")
            self._holdings.add_listener(self._wake)
            self._channel.settimeout(SEND_TIMEOUT_S)
            while not self._holdings.ended:
                self._send_hashes_and_one_piece()
        finally:
            self._holdings.remove_listener(self._wake)
            os.close(self._wake_reading)
            writing, self._wake_writing = self._wake_writing, -1
            os.close(writing)

    def _wake(self) -> None:
        try:
            os.write(self._wake_writing, b"x")
        except OSError:
            # The failed write needs no handling. Either the pipe is full, and wakes run() anyway;
            # or run() has ended.
            pass

    def _send_hashes_and_one_piece(self) -> None:
        arrived = self._holdings.arrived_segments
        if self._announced < len(arrived):
            segment = arrived[self._announced]
            self._announced += 1
            leaves = self._holdings.leaves[segment]
            self._channel.sendall(messages.encode(messages.LEAVES, segment, 0, leaves))
        has_more = self._send_piece() or self._announced < len(arrived)
        self._read_request(0.0 if has_more else _MAX_WAIT_S)

    def _send_piece(self) -> bool:
        """Send the first piece that the child has requested and this host has. Return False if
        there is none."""
        for segment in sorted(self._wanted):
            ready = self._wanted[segment] & self._holdings.held[segment]
            if ready:
                index = next(pieces.marked_numbers(ready))
                content = self._holdings.read(segment, index)
                self._limit.wait_for_bytes(len(content))
                self._channel.sendall(messages.encode(messages.PIECE, segment, index, content))
                self._wanted[segment] &= ~(1 << index)
                if not self._wanted[segment]:
                    del self._wanted[segment]
                return True
        return False

    def _read_request(self, within_s: float) -> None:
        """Read one request of the child. Return without a request if this host gets new hashes
        or pieces, or after `within_s` seconds."""
        if not self._channel.pending():
            waiting: List[Any] = [self._channel, self._wake_reading]
            ready, _, _ = select.select(waiting, [], [], within_s)
            if self._wake_reading in ready:
                os.read(self._wake_reading, 4096)
            if self._channel not in ready:
                return
        head = memoryview(bytearray(messages.HEAD.size))
        messages.receive_into(self._channel, head)
        kind, segment, _, count = messages.parse_head(bytes(head))
        content = memoryview(bytearray(count))
        messages.receive_into(self._channel, content)
        if kind != messages.WANT or not 0 <= segment < self._holdings.cut.segment_count:
            raise messages.InvalidMessage("the receiving host sent an invalid request")
        all_pieces = self._holdings.cut.full_bitmap(segment)
        self._wanted[segment] = pieces.bitmap_from(content) & all_pieces
