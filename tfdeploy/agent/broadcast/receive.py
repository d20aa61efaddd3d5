"""Receive pieces of a broadcast from a parent, which is a host that sends to this one: connect,
request the missing pieces, check the pieces that arrive, and write them."""

from __future__ import annotations

import socket
import ssl
import time

from tfdeploy.agent import json_text, pieces
from tfdeploy.agent.annotations import Callable, FrozenSet, Optional
from tfdeploy.agent.broadcast import messages
from tfdeploy.agent.broadcast.holdings import BroadcastEnded, Holdings, WrongHash
from tfdeploy.agent.host.threads import start_thread
from tfdeploy.agent.limit import RateLimit
from tfdeploy.agent.mesh import tls
from tfdeploy.agent.record import NamedTuple

CONNECT_TIMEOUT_S = 3.0  # limits the time to connect; a host that drops packets never answers
RETRY_S = 0.3  # the pause before the second try to connect

# The kinds of failure that a Receiver reports.
UNREACHED, LOST, WRONG, DISK = "unreached", "lost", "wrong", "disk"


class Parent(NamedTuple):
    """A host that sends to this one. `token`: the server name (SNI) in the TLS handshake with that
    host, see mesh/handshake_gate.py. `stripes`: into how many stripes the broadcast is divided."""

    name: str
    address: str
    port: int
    token: str
    stripes: int
    wanted_stripes: FrozenSet[int]  # the stripes that this parent sends to this host


class Receiver:
    """Receives from one parent on its own thread. If the thread fails, it calls `report(parent,
    kind, reason)` once, where `kind` is UNREACHED, LOST, WRONG or DISK."""

    def __init__(
        self,
        id_: str,
        parent: Parent,
        holdings: Holdings,
        context: ssl.SSLContext,
        limit: RateLimit,
        report: Callable[[str, str, str], None],
    ) -> None:
        self.parent = parent
        self._id, self._holdings, self._context, self._limit, self._report = (
            id_,
            holdings,
            context,
            limit,
            report,
        )
        self._channel: Optional[ssl.SSLSocket] = None
        self._closed = False
        start_thread(self._receive_or_report_failure)

    def close(self) -> None:
        """End the thread without a report. May be called from any thread."""
        self._closed = True
        if self._channel is not None:
            try:
                self._channel.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def _receive_or_report_failure(self) -> None:
        failure, reason = UNREACHED, ""
        for again in (False, True):
            try:
                with self._connect() as channel:
                    failure = LOST
                    self._receive(channel)
            except BroadcastEnded:
                return
            except WrongHash as error:
                failure, reason = WRONG, str(error)
                break
            except (OSError, ValueError, EOFError) as error:
                reason = str(error) or type(error).__name__
                if isinstance(error, _DiskError):
                    failure, reason = DISK, str(error.__cause__)
                    break
                if failure == UNREACHED:
                    break
            if self._closed or again:
                break
            time.sleep(RETRY_S)
        if not self._closed and not self._holdings.ended:
            self._report(self.parent.name, failure, reason[:200])

    def _connect(self) -> ssl.SSLSocket:
        parent = self.parent
        channel = self._channel = tls.connect(
            self._context, parent.address, parent.port, parent.token, parent.name, CONNECT_TIMEOUT_S
        )
        hello = {
            "broadcast": self._id,
            "stripes": parent.stripes,
            "wants": sorted(parent.wanted_stripes),
        }
        channel.sendall(json_text.encode(hello) + b"\n")
        return channel

    def _receive(self, channel: ssl.SSLSocket) -> None:
        # The connection needs no timeout, because the control machine detects that a parent sends
        # nothing.
        channel.settimeout(None)
        head, buffer = (
            memoryview(bytearray(messages.HEAD.size)),
            memoryview(bytearray(pieces.PIECE_BYTES)),
        )
        while not self._closed:
            messages.receive_into(channel, head)
            kind, segment, index, count = messages.parse_head(bytes(head))
            self._limit.wait_for_bytes(count)
            content = buffer[:count]
            messages.receive_into(channel, content)
            try:
                if kind == messages.PIECE:
                    self._holdings.store_piece(segment, index, content)
                    continue
                if kind != messages.LEAVES:
                    raise messages.InvalidMessage("the sending host sent an unexpected message")
                self._holdings.accept_leaves(segment, bytes(content))
            except OSError as error:
                raise _DiskError() from error
            wanted = self._holdings.lacking_bitmap(segment)
            wanted &= messages.stripes_bitmap(
                self.parent.stripes, self.parent.wanted_stripes, segment
            )
            if wanted:
                bitmap = pieces.bitmap_bytes(wanted)
                channel.sendall(messages.encode(messages.WANT, segment, 0, bitmap))


class _DiskError(OSError):
    """Raised if this host's disk is the cause of the failure, and not the connection."""
