"""Close the ports of a run's tasks to strangers: to all machines that are not hosts of the run. On
each port, a socket of the agent listens beside the task's socket. A filter in the kernel sends all
connections of strangers to the agent's socket, and the agent closes these connections.

The kernel puts all sockets that listen on one port into a group, and gives each socket an index.
The agent's socket keeps its index as long as any process has its descriptor. Supervisors and tasks
inherit the descriptor. So if the minder (the agent's daemon on each host of the run) is not
running, connections of strangers stay in the queue of the agent's socket.

A host of the run may connect before the task's server listens; the agent then closes the connection
normally. But it resets a stranger's connection, so the caller can distinguish the two cases.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import threading
import time

from tfdeploy.agent import peer_filter
from tfdeploy.agent.annotations import Callable, Dict, Iterable, Mapping, Optional, Set, Tuple
from tfdeploy.agent.host import threads
from tfdeploy.agent.host.network import listening, sockets, steering, tcp_diag
from tfdeploy.agent.host.threads import start_thread

_BACKLOG = 1024
# After this many connections of one port, the connections of the next port are accepted.
_AT_ONCE = 256
_PAUSE_S = 0.01  # the pause between two polls
_END_WITHIN_S = 2.0  # limits the wait until the thread has ended
MOST_LEARNED = 256  # at most this many addresses outside the plan are admitted
# Limits how many addresses one host may add, so that it cannot use all the space in the filter.
MOST_PER_HOST = 32
# The kernel gives an index to each socket that listens on a port, in the order in which they began
# to listen. The pair is (index of the agent's socket, index of the task's socket) if the agent's
# socket was the first.
_FIRST_IN_GROUP = (0, 1)


class GuardedPorts:
    """Guards the ports of the tasks on this host. `addresses`: the addresses of all hosts in the
    plan. `host_by_ip`: for each address that was admitted later, the host that stated it as its own
    ("" if unknown). `refused_ip_by_host`: for each host, the first address from which it connected
    without having stated it as its own."""

    # The kernel keeps the sockets that listen on one port in an array. When one of them closes, the
    # kernel moves the last socket of the array to the free index.

    def __init__(
        self,
        addresses: Iterable[str],
        host_by_ip: Mapping[str, str],
        refused_ip_by_host: Mapping[str, str],
    ) -> None:
        self._lock = threading.Lock()
        self._planned = tuple(addresses)
        self.host_by_ip = {
            each: host for each, host in host_by_ip.items() if peer_filter.is_address(each)
        }
        self._admitted = set(map(peer_filter.parse_address, (*self._planned, *self.host_by_ip)))
        self.refused_ip_by_host = dict(refused_ip_by_host)
        self._held: Dict[int, socket.socket] = {}
        # port -> (index of the agent's socket, index of the task's socket) in the kernel's array.
        # None: this object attaches no filter, because an older socket of the agent has the filter.
        # The task's processes still have that socket.
        self._order: Dict[int, Optional[Tuple[int, int]]] = {}
        self._closed = False
        self._thread: Optional[threading.Thread] = None

    # --- starting to guard the ports

    def guard_port(
        self,
        port: int,
        inherited_descriptor: Optional[int],
        bind_port: Callable[[], socket.socket],
        first_inode: Optional[int],
    ) -> None:
        """Guard a port. Raises OSError.

        `inherited_descriptor`: descriptor of the socket with which an earlier minder guarded the
        port. `bind_port`: a function that binds the port. `first_inode`: inode of the socket that
        guarded the port when the task started. The task's processes may still have that socket.
        """
        inherited = _listening_socket(inherited_descriptor, port)
        if inherited is not None:
            # The filter is still attached, because the inherited socket was not closed.
            is_first = _socket_inode(inherited) == first_inode
            before = 0 if is_first else len(_other_listeners(port, inherited))
            self._held[port], self._order[port] = inherited, (before, 0 if before else 1)
            return
        held = bind_port()
        self._held[port], self._order[port] = held, _FIRST_IN_GROUP
        if _bound_port(held) != port:
            return
        others = _other_listeners(port, held)
        # The task's processes have the other sockets. One of these may be the agent's socket that
        # guarded the port when the task started. The filter is then already attached to this old
        # socket. When the old socket closes, the kernel gives its index to the new one.
        if others:
            self._order[port] = None if first_inode in others else (len(others), 0)
        self._start_listening(port)

    def _start_listening(self, port: int) -> None:
        held = self._held[port]
        # Accepted connections inherit SO_REUSEADDR from this socket. So the next run can use the
        # port although some of these connections are still in TIME_WAIT. The option does not allow
        # other users to listen on this port.
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.setblocking(False)
        # The filter is attached after listen(), because listen() fails on connections in TIME_WAIT
        # if the socket has a filter already. Between the two calls, the port is no more open than
        # before. If the task does not listen, nobody can reach it. If the task listens, either
        # another socket's filter protects the port, or the port was open to all anyway.
        held.listen(_BACKLOG)
        self._attach_filter(port)

    def start(self) -> None:
        """Start the thread that closes the connections of strangers."""
        self._end_seen, self._end = socket.socketpair()
        self._thread = start_thread(self._hang_up_on_strangers_until_closed)

    # --- methods that the minder calls

    def listening_descriptors(self) -> Dict[int, int]:
        """Return port -> descriptor of the agent's listening socket, in the form that
        descriptors.popen_arguments needs."""
        return {port: held.fileno() for port, held in self._held.items() if _is_listening(held)}

    def find_unfiltered_listeners(self) -> Dict[int, str]:
        """Return port -> address, for sockets that listen on a guarded port but to which the filter
        does not apply. See tcp_diag.find_partial_listeners."""
        return tcp_diag.find_partial_listeners(
            self._held, set(map(_socket_inode, self._held.values()))
        )

    def is_admitted(self, address: str) -> bool:
        if not peer_filter.is_address(address):
            return False
        parsed = peer_filter.parse_address(address)
        return parsed in self._admitted or peer_filter.is_loopback(parsed)

    def admit_if_new(self, address: str, host: str = "") -> bool:
        """Admit an address that `host` has stated as its own. Return False if the address was
        admitted before. Raises OSError if the filter is full."""
        with self._lock:
            if self.is_admitted(address):
                return False
            if (
                len(self.host_by_ip) >= MOST_LEARNED
                or list(self.host_by_ip.values()).count(host) >= MOST_PER_HOST
            ):
                raise OSError(errno.ENOMEM, "a host of the run came from too many addresses")
            before, self.host_by_ip = self.host_by_ip, dict(self.host_by_ip, **{address: host})
            try:
                for port, held in self._held.items():
                    if _is_listening(held):
                        self._attach_filter(port)
            except OSError:
                self.host_by_ip = before
                raise
            self._admitted.add(peer_filter.parse_address(address))
            return True

    def record_refused_if_new(self, address: str, host: str) -> bool:
        """Record that `host` connected from an address that it did not state as its own. Return
        False if an address is already recorded for this host."""
        with self._lock:
            if host in self.refused_ip_by_host:
                return False
            self.refused_ip_by_host = dict(self.refused_ip_by_host, **{host: address})
            return True

    def prepare_task_start(self, port: Optional[int]) -> None:
        """Prepare the port for a new start of its task. The agent's socket becomes the first in the
        port's group, so that the task's socket comes after it. No process of the task may listen on
        the port at this time. Raises OSError."""
        with self._lock:
            if port is None or port not in self._held:
                return
            if _other_listeners(port, self._held[port]) or not _is_listening(self._held[port]):
                self._replace_socket(port)
            elif self._order[port] != _FIRST_IN_GROUP:
                self._order[port] = _FIRST_IN_GROUP
                self._attach_filter(port)

    def _replace_socket(self, port: int) -> None:
        """Replace the agent's socket, because it does not listen, or because processes that escaped
        from the run listen on the same port."""
        before = self._held[port]
        try:
            self._held[port] = sockets.hold_port(port, may_be_bound=True)
        except OSError:
            # Another process has bound the port exclusively, so the task cannot listen on it
            # anyway.
            return
        if _is_listening(before):
            # This ends the listening of the old socket in all processes that have it open. To close
            # the socket would not be enough, for example while this object's thread polls it.
            before.shutdown(socket.SHUT_RDWR)
        before.close()
        others = len(_other_listeners(port, self._held[port]))
        self._order[port] = (others, others + 1)
        self._start_listening(port)

    def close(self) -> None:
        """Close the agent's sockets in this process. Other processes may still have them open."""
        self._closed = True
        if self._thread is not None:
            self._end.close()
            # Wait for the end of the thread before the sockets are closed, because a socket that
            # the thread polls would stay open.
            self._thread.join(_END_WITHIN_S)
            self._end_seen.close()
        for held in self._held.values():
            held.close()
        self._held = {}

    # --- handling one port

    def _attach_filter(self, port: int) -> None:
        order = self._order[port]
        if order is not None:
            agent_index, task_index = order
            addresses = (*self._planned, *self.host_by_ip)
            steering.attach_reuseport_filter(
                self._held[port], peer_filter.build_filter(addresses, task_index, agent_index)
            )

    def _hang_up_on_strangers_until_closed(self) -> None:
        while not self._closed:
            try:
                listening_sockets = filter(_is_listening, list(self._held.values()))
                ready = select.select([self._end_seen, *listening_sockets], [], [], 1.0)[0]
                for held in ready:
                    if held is not self._end_seen:
                        self._hang_up_on_strangers(held)
            except Exception:  # noqa: BLE001 - strangers stay shut out, and peers retry
                if not self._closed:
                    threads.print_error_once("closing connections from unknown addresses")
            time.sleep(_PAUSE_S)

    def _hang_up_on_strangers(self, bound_socket: socket.socket) -> None:
        for _ in range(_AT_ONCE):
            try:
                caller, address = bound_socket.accept()
            except (BlockingIOError, ConnectionError):
                return
            except OSError:
                # If the socket does not listen, it was closed meanwhile.
                if _is_listening(bound_socket):
                    raise
                return
            if not self.is_admitted(str(address[0])):
                sockets.reset_on_close(caller)
            caller.close()


def _listening_socket(descriptor: Optional[int], port: int) -> Optional[socket.socket]:
    """Return the socket of this descriptor if it listens on `port`, else None."""
    if descriptor is None:
        return None
    try:
        held = socket.socket(fileno=descriptor)
    except OSError:
        return None
    return held if _bound_port(held) == port and _is_listening(held) else None


def _bound_port(bound_socket: socket.socket) -> int:
    try:
        return int(bound_socket.getsockname()[1])
    except OSError:
        return 0


def _is_listening(bound_socket: socket.socket) -> bool:
    try:
        return bool(bound_socket.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
    except OSError:
        return False


def _socket_inode(bound_socket: socket.socket) -> int:
    return os.fstat(bound_socket.fileno()).st_ino


def _other_listeners(port: int, bound_socket: socket.socket) -> Set[int]:
    """Return the inodes of the sockets that listen on the port, except `bound_socket`."""
    return listening.listener_inodes(port) - {_socket_inode(bound_socket)}
