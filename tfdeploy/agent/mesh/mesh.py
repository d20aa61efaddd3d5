"""Share the state of this host's minder (the agent's daemon for the run) with its peers, which are
the minders of all other hosts of the run. Connections use mutual TLS. Each host has one port for
them. Peers without a certificate of this run are rejected.

A message is one JSON line that contains the whole state of its sender. The answer contains the
state of the receiver. A message that is received twice does no harm.

A change is sent to all peers with running tasks. It is sent again, with growing pauses, until they
acknowledge it, and each receiver passes it on. In addition, a minder exchanges states with one
random peer every ten seconds. Nothing about the run is decided here.
"""

from __future__ import annotations

import random
import socket
import ssl
import threading
import time

from tfdeploy.agent import wire
from tfdeploy.agent.annotations import (
    TYPE_CHECKING,
    Any,
    Callable,
    Dict,
    Iterable,
    List,
    Mapping,
    Optional,
    Tuple,
)
from tfdeploy.agent.host import threads
from tfdeploy.agent.host.threads import start_thread
from tfdeploy.agent.mesh import handshake_gate, shared_state, stated_addresses, tls
from tfdeploy.agent.mesh import listener as mesh_listener
from tfdeploy.agent.mesh.gossip_schedule import GossipSchedule, PeerContactState
from tfdeploy.agent.mesh.shared_state import KnownRunState

if TYPE_CHECKING:
    from tfdeploy.agent.host.network.guarded_ports import GuardedPorts
    from tfdeploy.agent.shapes import Certificates

# The pause after a change was sent to some peers. Further changes that occur in this pause are sent
# in one message.
SETTLE_S = 0.02
# A peer whose port has refused connections for this many seconds has no minder any more. A minder
# that died is replaced sooner, within 2 to 5 seconds.
NO_MINDER_AFTER_S = 6.0
LAST_UPDATE_TIMEOUT_S = 1.0  # how long `send_last_update` may take


class Mesh:
    """The connections of this host's minder to the other minders.

    `listener`: a bound socket, which `close` closes.
    `changed()`: is called from any thread when a peer has sent something new.
    `offers(host, question, channel)`: must answer the questions that peers ask with
    `send_question`.
    """

    def __init__(
        self,
        part: wire.HostPart,
        certs: Certificates,
        listener: socket.socket,
        known: KnownRunState,
        changed: Callable[[], None],
        offers: Callable[[str, Any, ssl.SSLSocket], None],
        guarded: Optional[GuardedPorts],
    ) -> None:
        import encodings.idna  # noqa: F401 - a later, implicit import could fail for lack of memory

        self._part = part
        server, self._client = tls.make_contexts(certs)
        self.changed = changed
        self._offers = offers
        self._guarded = guarded
        self._lock = threading.Condition()
        self._known = known
        self._digest = known.digest()
        nothing = KnownRunState().digest()
        self._peers = {
            address.host: PeerContactState(address, nothing)
            for address in part.mesh
            if address.host != part.host
        }
        self._begun = time.monotonic()
        self._schedule = GossipSchedule(self._peers, self._begun, part.unminded_after_s)
        self._closed = False
        self._authority = certs["ca"]
        self._listener = mesh_listener.MeshListener(
            listener,
            server,
            list(self._peers),
            self._answer_peer_message,
            handshake_gate.server_name_token(self._authority, part.host),
            guarded.is_admitted if guarded is not None else lambda address: True,
        )
        start_thread(self._send_to_due_peers_until_closed)

    # --- methods that the minder calls

    def current_state(self) -> KnownRunState:
        with self._lock:
            return self._known

    def join_and_send(self, known: KnownRunState) -> bool:
        """Join `known` to the shared state, and send the result to the peers. Return True if this
        has changed the shared state."""
        with self._lock:
            joined = self._known.join(known)
            if joined == self._known:
                return False
            late = joined.is_over and joined == self._known._replace(ended=joined.ended)
            self._known, self._digest = joined, joined.digest()
            self._schedule.schedule_state_sending(late, time.monotonic())
            self._lock.notify_all()
            return True

    def have_peers_same_state(self) -> bool:
        """Return True if all peers with running tasks have the same state as this minder. A peer
        whose minder has ended does not count."""
        with self._lock:
            return all(
                peer.digest == self._digest or self._has_minder_ended(peer)
                for peer in self._peers_with_running_tasks()
            )

    def _has_minder_ended(self, peer: PeerContactState) -> bool:
        """Return True if the peer's minder has ended, so that its port refuses connections. Before
        the run is committed, the minder of a peer that has never sent a message may not have
        started yet. So the result is then False."""
        refused = peer.refused is not None and peer.refused <= time.monotonic() - NO_MINDER_AFTER_S
        return refused and (peer.last_message is not None or self._known.committed)

    def has_heard_any_peer(self) -> bool:
        """Return True if this minder has received a message from any peer, or if no peer has
        running tasks."""
        with self._lock:
            return not self._peers_with_running_tasks() or any(
                peer.last_message is not None for peer in self._peers.values()
            )

    def silence_s_by_host(self, now: float, since: Optional[float]) -> Dict[str, float]:
        """Return {host: for how many seconds it has been silent}. The silence begins with the
        host's last message, but not before `since` and not before the start of this minder."""
        with self._lock:
            # A minder that has just replaced a dead one has not received any message yet. This must
            # not count as silence of the other hosts.
            begin = max(self._begun, since or 0.0)
            return {
                host: now - max(begin, peer.last_message or begin)
                for host, peer in self._peers.items()
            }

    def refusal_s_by_host(self) -> Dict[str, float]:
        """Return {host: for how many seconds it has refused all connections}, counted from the
        first refusal to the last. A host whose last connection was not refused is left out."""
        with self._lock:
            return {
                host: peer.refused_until - peer.refused
                for host, peer in self._peers.items()
                if peer.refused is not None
            }

    def set_connect_interval(self, every_s: float) -> None:
        """From now on, connect at least once in `every_s` seconds to each peer that has running
        tasks."""
        with self._lock:
            if self._schedule.set_connect_interval(every_s):
                self._lock.notify_all()

    def reduce_connection_rate(self) -> None:
        """From now on, connect to peers less often. Messages of peers are answered as quickly as
        before."""
        with self._lock:
            self._schedule.reduce_connection_rate()

    def send_last_update(self) -> None:
        """Send the state once more to some of the peers that lack something, with or without
        running tasks. Called when this minder is about to end, because these peers may still wait
        to learn how this host's tasks ended. A peer that does not get this message learns later
        that this minder has ended, because its port is closed."""
        # Imported only here, because it is needed only at the end.
        from tfdeploy.agent.host.parallel import call_for_each

        with self._lock:
            outdated = [
                peer
                for peer in self._peers.values()
                if peer.digest != self._digest and peer.refused is None
            ]
        random.shuffle(outdated)
        try:
            call_for_each(
                self._try_exchange_state, outdated[: self._schedule.fanout], LAST_UPDATE_TIMEOUT_S
            )
        except (RuntimeError, MemoryError):
            pass  # the system allows no more threads, and the peers notice the closed port anyway

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._lock.notify_all()
        self._listener.close()

    # --- the shared state

    def _peers_with_running_tasks(self) -> List[PeerContactState]:
        """Return the peers on whose hosts a task may still run, as far as this minder knows."""
        running = {peer.host for peer in self._part.peers if self._may_task_still_run(peer)}
        return [peer for host, peer in self._peers.items() if host in running]

    def _may_task_still_run(self, peer: wire.Peer) -> bool:
        ending = self._known.ended.get(peer.task)
        if ending is None or not shared_state.is_final(ending):
            return True
        # A task of the gang that has ended for good may still run again, because the whole gang may
        # restart until the run is over. A task with the outcome "stopped" does not, because tasks
        # are stopped only when the run is over.
        return peer.gang and self._part.restart_max > 0 and ending["outcome"] != "stopped"

    def _join_received_state(self, host: str, value: Any) -> None:
        """Check the state that a peer has sent, and join it to the shared state. Raises ValueError
        if it is not a valid state."""
        theirs = shared_state.from_json(value, self._part)
        is_new = self.join_and_send(theirs)
        with self._lock:
            peer = self._peers[host]
            peer.digest, peer.last_message, peer.failures, peer.refused = (
                theirs.digest(),
                time.monotonic(),
                0,
                None,
            )
            self._lock.notify_all()
        if is_new:
            self.changed()

    # --- sending to peers

    def _send_to_due_peers_until_closed(self) -> None:
        while not self._closed:
            try:
                self._send_to_due_peers()
            except Exception:  # noqa: BLE001 - whatever the error, other hosts wait for messages
                threads.print_error_once("sending to peers")
                time.sleep(1.0)

    def _send_to_due_peers(self) -> None:
        """Connect to the peers that are due now. If no peer is due, wait until one may be due or
        the state has changed, and return."""
        with self._lock:
            now = time.monotonic()
            running = self._peers_with_running_tasks()
            chosen = self._schedule.choose_due_peers(running, self._digest, now)
            if not chosen and not self._closed:
                pause_s = self._schedule.seconds_until_due(running, self._digest, now)
                self._lock.wait(min(pause_s, mesh_listener.TIMEOUT_S))
                return
            for peer in chosen:
                peer.busy, peer.tried = True, now
        for peer in chosen:
            try:
                start_thread(self._try_exchange_state, peer)
            except (RuntimeError, MemoryError):  # the system allows no more threads
                # A task may have used up all processes of the user. The exchange must take place
                # anyway, because the peer may know that this task must end.
                self._try_exchange_state(peer)
        time.sleep(SETTLE_S)

    def _try_exchange_state(self, peer: PeerContactState) -> None:
        try:
            self._exchange_state(peer)
        except (OSError, ValueError) as error:
            refusals = (ConnectionRefusedError, ssl.SSLCertVerificationError, tls.WrongHostAnswered)
            self._record_failure(peer, isinstance(error, refusals))
        except Exception:  # noqa: BLE001 - for example no memory is left: the exchange is retried
            threads.print_error_once("exchanging states with a peer")
            self._record_failure(peer, refused=False)
        finally:
            with self._lock:
                peer.busy = False
                self._lock.notify_all()

    def _record_failure(self, peer: PeerContactState, refused: bool) -> None:
        with self._lock:
            peer.busy = False
            self._schedule.record_failure(peer, refused, time.monotonic())

    def _exchange_state(self, peer: PeerContactState) -> None:
        with self.connect(peer.address) as channel:
            addresses = stated_addresses.list_own_addresses(channel)
            with self._lock:
                sent, message = self._digest, self._encode_state_message(addresses)
            channel.sendall(message)
            value = mesh_listener.receive_message(channel)
        self._join_received_state(
            peer.address.host, self._state_from_sender(value, peer.address.host)
        )
        with self._lock:
            # The peer has received this state, but still has another one. A reason may be that its
            # agent has another version, and then this will not change. So the exchange is not
            # repeated soon.
            if sent == self._digest != peer.digest:
                peer.not_before = time.monotonic() + self._schedule.longest_pause_s

    def connect(self, address: wire.MeshHost) -> ssl.SSLSocket:
        """Open a connection to the minder of the host at `address`. Raises OSError, and
        WrongHostAnswered if a different host answers."""
        token = handshake_gate.server_name_token(self._authority, address.host)
        return tls.connect(
            self._client,
            address.address,
            address.port,
            token,
            address.host,
            mesh_listener.TIMEOUT_S,
        )

    def send_question(self, channel: ssl.SSLSocket, question: Mapping[str, object]) -> None:
        """Send a question instead of the state. The peer answers it by its callback `offers`."""
        channel.sendall(
            mesh_listener.encode_message(
                self._part, addresses=stated_addresses.list_own_addresses(channel), ask=question
            )
        )

    def _encode_state_message(self, addresses: Iterable[str] = ()) -> bytes:
        """Return the message with this minder's state. `addresses`: the addresses that this host
        states as its own. They are left out of an answer to another minder's message."""
        with self._lock:
            known = self._known.as_json()
        return mesh_listener.encode_message(self._part, known=known, addresses=list(addresses))

    def _state_from_sender(self, value: Any, host: str) -> Any:
        sender = (value.get("run"), value.get("from")) if isinstance(value, dict) else None
        if sender != (self._part.run, host):
            raise ValueError("the message is from another run or host")
        return value.get("known")

    def _answer_peer_message(self, host: str, channel: ssl.SSLSocket) -> None:
        value = mesh_listener.receive_message(channel)
        known = self._state_from_sender(value, host)
        source, is_admitted = self._admit_source_address(host, channel, value.get("addresses"))
        question = value.get("ask")
        if isinstance(question, dict) and stated_addresses.SEEN_AS in question:
            channel.sendall(
                mesh_listener.encode_message(self._part, seen=source, admitted=is_admitted)
            )
        elif "ask" in value:
            self._offers(host, question, channel)
        else:
            self._join_received_state(host, known)
            channel.sendall(self._encode_state_message())

    def _admit_source_address(
        self, host: str, channel: ssl.SSLSocket, addresses: Any
    ) -> Tuple[str, bool]:
        """Return (source address of the member's connection, whether the task ports of this host
        admit that address). If the member states the address as its own, the ports admit it from
        now on."""
        source, is_its_own = stated_addresses.check_source_address(channel, addresses)
        if self._guarded is None or self._guarded.is_admitted(source):
            return source, True
        try:
            changed = (
                self._guarded.admit_if_new(source, host)
                if is_its_own
                else self._guarded.record_refused_if_new(source, host)
            )
        # The filter of the task ports has no space for the address, so the ports do not admit it.
        # The minders can still connect to each other.
        except OSError:
            changed = is_its_own = False
        if changed:
            self.changed()
        return source, is_its_own
