"""Take part in one broadcast on this host: receive pieces of the files from parents (the hosts that
send to this host), and send pieces to children (the hosts that receive from this host). A member
lives as long as its SSH session.

The control machine decides which host sends to which, and may change that at any time. A member
reports to the control machine which pieces it has, and which of its parents have failed.
"""

from __future__ import annotations

import queue
import socket
import ssl
import threading

from tfdeploy.agent.annotations import (
    TYPE_CHECKING,
    Dict,
    FrozenSet,
    List,
    Mapping,
    Optional,
    Tuple,
)
from tfdeploy.agent.broadcast import messages
from tfdeploy.agent.broadcast.holdings import BroadcastEnded, Holdings, WrongHash
from tfdeploy.agent.broadcast.receive import DISK, Parent, Receiver
from tfdeploy.agent.broadcast.send import Sender
from tfdeploy.agent.host.network import sockets
from tfdeploy.agent.host.threads import start_thread
from tfdeploy.agent.limit import RateLimit
from tfdeploy.agent.mesh import handshake_gate, tls
from tfdeploy.agent.mesh.listener import MeshListener

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Certificates

# In reports, this name stands for the control machine. The control machine sends its pieces over
# the SSH session.
CONTROL_MACHINE = ""


class Member:
    def __init__(
        self,
        id_: str,
        name: str,
        members: List[str],
        holdings: Holdings,
        certs: Certificates,
        rate: int,
    ) -> None:
        """`rate`: the limit in bytes per second. It applies to sending and to receiving separately.
        0 means no limit."""
        self.id, self.name, self.holdings = id_, name, holdings
        self._members, self._certs = members, certs
        self._server, self._client = tls.make_contexts(certs)
        self._send_limit, self._receive_limit = RateLimit(rate), RateLimit(rate)
        self._lock = threading.Lock()
        self._parents: Dict[str, Receiver] = {}
        self._control_stripes: FrozenSet[int] = frozenset()
        self._stripes = 1
        self._listener: Optional[MeshListener] = None
        # True if no machine sends to this host, because this host has all files. Then a thread
        # hashes these files, so that this host can send them to others.
        self._has_no_sender = False
        # Reports for the control machine. A failure is (name of the sending host, kind of failure,
        # reason). The value None is no failure: it only wakes the reader when this host has all
        # pieces.
        self.reports: "queue.Queue[Optional[Tuple[str, str, str]]]" = queue.Queue()

    @property
    def ca_pem(self) -> str:
        return self._certs["ca"]

    # --- hosts that receive from this one

    def listen(self, first_port: int, last_port: int) -> Optional[int]:
        """Listen on a free port from `first_port` to `last_port`, and return it. Return None if no
        port is free."""
        # Start from the high end, because runs take their ports from the low end of the range.
        for port in range(last_port, first_port - 1, -1):
            try:
                bound = sockets.bind_exclusively(port)
            except OSError:
                continue
            token = handshake_gate.server_name_token(self.ca_pem, self.name)
            self._listener = MeshListener(
                bound, self._server, self._members, self._serve_child, token
            )
            return port
        return None

    def _serve_child(self, child: str, channel: ssl.SSLSocket) -> None:
        channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            Sender(self.holdings, channel, self._send_limit).run(self.id)
        except EOFError:
            pass  # the child has closed the connection

    # --- hosts that send to this one

    def set_senders(
        self,
        stripe_count: int,
        parent_by_host: Mapping[str, Parent],
        control_stripes: FrozenSet[int],
    ) -> None:
        """Set the hosts that send to this host from now on. `parent_by_host`: {name of such a host:
        how to reach it, and what it sends}. If neither changes for a host, the connection to it
        stays open. `control_stripes`: the numbers of the stripes (parts of the data) that the
        control machine sends."""
        self.holdings.set_stripes(stripe_count)
        with self._lock:
            self._stripes, self._control_stripes = stripe_count, control_stripes
            for name, receiver in list(self._parents.items()):
                if parent_by_host.get(name) != receiver.parent:
                    self._parents.pop(name).close()
            for name, parent in parent_by_host.items():
                if name not in self._parents:
                    self._parents[name] = Receiver(
                        self.id,
                        parent,
                        self.holdings,
                        self._client,
                        self._receive_limit,
                        self._report_failure,
                    )
            alone, self._has_no_sender = (
                self._has_no_sender,
                not parent_by_host and not control_stripes,
            )
        if self._has_no_sender and not alone:
            start_thread(self._hash_own_files)

    def _report_failure(self, parent: str, failure: str, reason: str) -> None:
        with self._lock:
            self._parents.pop(parent, None)
        self.reports.put((parent, failure, reason))

    def _hash_own_files(self) -> None:
        """Hash this host's files, so that this host can send them to others. The files have the
        right sizes and times, so they are expected to be complete. If the computed hash of a
        segment differs from the expected root hash, report this and stop. Segments whose leaves
        (hashes of the pieces) are known already are skipped."""
        for segment in range(self.holdings.cut.segment_count):
            if not self._has_no_sender:
                return
            if segment in self.holdings.leaves:
                continue
            try:
                self.holdings.root_hash(segment)
                leaves = self.holdings.compute_leaves(segment)
                self.holdings.accept_leaves(segment, leaves, has_all_pieces=True)
            except BroadcastEnded:
                return
            except (WrongHash, OSError) as error:
                self.reports.put((self.name, "differs", str(error)))
                return

    # --- pieces from the control machine

    def accept_leaves_and_find_lacking_bitmap(self, segment: int, leaves: bytes) -> int:
        """Accept the leaves (hashes of the pieces) of a segment from the control machine. Return
        the bitmap of the pieces that the control machine must send. Raises WrongHash,
        BroadcastEnded, OSError."""
        self.holdings.accept_leaves(segment, leaves)
        return self.holdings.lacking_bitmap(segment) & messages.stripes_bitmap(
            self._stripes, self._control_stripes, segment
        )

    def store_from_control(self, segment: int, index: int, content: bytes) -> None:
        """Store a piece from the control machine. Raises WrongHash, OSError."""
        self._receive_limit.wait_for_bytes(len(content))
        try:
            self.holdings.store_piece(segment, index, memoryview(content))
        except OSError as error:
            self.reports.put((CONTROL_MACHINE, DISK, str(error)))
            raise

    def close(self) -> None:
        self.holdings.end_broadcast()
        with self._lock:
            self._has_no_sender = False
            parents, self._parents = dict(self._parents), {}
        for each in parents.values():
            each.close()
        if self._listener is not None:
            self._listener.close()
