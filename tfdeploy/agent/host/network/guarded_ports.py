"""The ports of a run's tasks, closed to strangers: a socket of ours listens on each and hangs up on
all who are not let in.

It stays open, with its place in the port's group, for as long as a process has its descriptor: the
supervisors and the task's own processes have it too. While no minder lives, strangers wait in its
queue for nothing. Peers that come before their server listens are told apart from strangers by how
they are hung up on: an end, not a reset.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import struct
import threading
import time

from tfdeploy.agent import peer_filter
from tfdeploy.agent.annotations import Callable, Dict, Iterable, Mapping, Optional, Set, Tuple
from tfdeploy.agent.host import thread_errors
from tfdeploy.agent.host.network import listening, sockets, steering, tcp_diag

_BACKLOG = 1024
_AT_ONCE = 256  # connections of one port between two looks at the others
_PAUSE_S = 0.01
_END_WITHIN_S = 2.0
MOST_LEARNED = 256
MOST_PER_HOST = 32  # of MOST_LEARNED: one host must not use up the filter for all hosts
_FIRST = (0, 1)
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close() sends a reset


class GuardedPorts:
    """`addresses`: of the run's hosts, from the plan. `learned`: address that was admitted later ->
    the host that stated the address ("": not known). `turned_away`: host -> the first address of
    its connections that it did not state as its own."""

    # Of the sockets that listen on a port, the kernel keeps the order; where one closes, it moves
    # the last one to its place.

    def __init__(
        self,
        addresses: Iterable[str],
        learned: Mapping[str, str] = {},  # noqa: B006 - never changed
        turned_away: Mapping[str, str] = {},  # noqa: B006 - never changed
    ) -> None:
        self._lock = threading.Lock()
        self._planned = tuple(addresses)
        self._admitted = set(map(peer_filter.address, self._planned))
        self.learned = {
            each: host for each, host in learned.items() if peer_filter.is_address(each)
        }
        self.turned_away = dict(turned_away)
        self._admitted.update(map(peer_filter.address, self.learned))
        self._held: Dict[int, socket.socket] = {}
        # the places of ours and the task's; None: another has the filter
        self._order: Dict[int, Optional[Tuple[int, int]]] = {}
        self._closed = False
        self._thread: Optional[threading.Thread] = None

    # --- to begin

    def guard(
        self,
        port: int,
        inherited: Optional[int],
        hold: Callable[[], socket.socket],
        first: Optional[int],
    ) -> None:
        """`inherited`: the descriptor that a dead minder had; `hold` binds the port; `first`: the
        inode of the socket that had guarded it when the task began, which its processes may still
        have. Raises OSError."""
        taken = _listening(inherited, port)
        if taken is not None:  # with its filter
            before = 0 if _inode(taken) == first else len(_others(port, taken))
            self._held[port], self._order[port] = taken, (before, 0 if before else 1)
            return
        held = hold()
        self._held[port], self._order[port] = held, _FIRST
        if _port_of(held) != port:
            return
        others = _others(port, held)
        # the task's; where one of ours is there, it has the filter, and this one gets its place
        # when it closes
        if others:
            self._order[port] = None if first in others else (len(others), 0)
        self._listen(port)

    def _listen(self, port: int) -> None:
        held = self._held[port]
        # The next run looks at what connections leave behind (TIME_WAIT). No other user can listen
        # beside this one.
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.setblocking(False)
        # With a filter of its own, listen() takes TIME_WAIT for a conflict. Without, it comes to no
        # harm: it is alone, or comes behind a task that is open to all so far, or behind a socket
        # that has the filter.
        held.listen(_BACKLOG)
        self._attach(port)

    def begin(self) -> None:
        """From now on strangers are hung up on."""
        self._end_seen, self._end = socket.socketpair()
        self._thread = threading.Thread(target=self._loop, daemon=True)
        self._thread.start()

    # --- for the minder

    def descriptors(self) -> Dict[int, int]:
        """For descriptors.leave."""
        return {port: held.fileno() for port, held in self._held.items() if _listens(held)}

    def open_to_all(self) -> Dict[int, str]:
        """Port -> the address at which a program listens apart from the group that the filter
        covers."""
        return tcp_diag.open_to_all(list(self._held), list(map(_inode, self._held.values())))

    def is_admitted(self, address: str) -> bool:
        if not peer_filter.is_address(address):
            return False
        one = peer_filter.address(address)
        return one in self._admitted or peer_filter.is_loopback(one)

    def admit(self, address: str, host: str = "") -> bool:
        """Let in one more address, which this host of the run stated as its own. Returns False if
        it was let in before. Raises OSError if the filter is full."""
        with self._lock:
            if self.is_admitted(address):
                return False
            if (
                len(self.learned) >= MOST_LEARNED
                or list(self.learned.values()).count(host) >= MOST_PER_HOST
            ):
                raise OSError(errno.ENOMEM, "a host of the run came from too many addresses")
            before, self.learned = self.learned, dict(self.learned, **{address: host})
            try:
                for port, held in self._held.items():
                    if _listens(held):
                        self._attach(port)
            except OSError:
                self.learned = before
                raise
            self._admitted.add(peer_filter.address(address))
            return True

    def turn_away(self, address: str, host: str) -> bool:
        """Note that a host of the run came through an address that it did not state as its own.
        Returns False if one of that host was noted before."""
        with self._lock:
            if host in self.turned_away:
                return False
            self.turned_away = dict(self.turned_away, **{host: address})
            return True

    def before_start(self, port: Optional[int]) -> None:
        """No process of a task listens on that port now: the next one to listen is behind our
        socket. Raises OSError."""
        with self._lock:
            if port is None or port not in self._held:
                return
            if _others(port, self._held[port]) or not _listens(self._held[port]):
                self._renew(port)
            elif self._order[port] != _FIRST:
                self._order[port] = _FIRST
                self._attach(port)

    def _renew(self, port: int) -> None:
        """In place of one that does not listen, or behind what processes hold that got away from
        the run."""
        before = self._held[port]
        try:
            self._held[port] = sockets.hold(port, may_be_bound=True)
        except OSError:
            return  # a process has the port alone: no task listens there
        if _listens(before):
            # in every process that has it, and while the other thread waits for it
            before.shutdown(socket.SHUT_RDWR)
        before.close()
        others = len(_others(port, self._held[port]))
        self._order[port] = (others, others + 1)
        self._listen(port)

    def close(self) -> None:
        """This process needs them no longer."""
        self._closed = True
        if self._thread is not None:
            self._end.close()
            self._thread.join(_END_WITHIN_S)  # a socket that it waits for stays open
            self._end_seen.close()
        for held in self._held.values():
            held.close()
        self._held = {}

    # --- one port

    def _attach(self, port: int) -> None:
        order = self._order[port]
        if order is not None:
            steering.attach(
                self._held[port],
                peer_filter.program(
                    self._planned + tuple(self.learned), peers=order[1], others=order[0]
                ),
            )

    def _loop(self) -> None:
        while not self._closed:
            try:
                held = [each for each in self._held.values() if _listens(each)]
                ready = select.select([self._end_seen, *held], [], [], 1.0)[0]
                for each in held:
                    if each in ready:
                        self._hang_up(each)
            except Exception:  # noqa: BLE001 - strangers are kept out all the same, and peers try again
                if not self._closed:
                    thread_errors.report_once("hanging up on strangers")
            time.sleep(_PAUSE_S)

    def _hang_up(self, held: socket.socket) -> None:
        for _ in range(_AT_ONCE):
            try:
                caller, address = held.accept()
            except (BlockingIOError, InterruptedError, ConnectionError):
                return
            except OSError:
                if _listens(held):  # it was not closed meanwhile
                    raise
                return
            if not self.is_admitted(str(address[0])):
                caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            caller.close()


def _listening(descriptor: Optional[int], port: int) -> Optional[socket.socket]:
    """The socket of that descriptor, if it listens on `port`."""
    if descriptor is None:
        return None
    try:
        one = socket.socket(fileno=descriptor)
    except OSError:
        return None
    return one if _port_of(one) == port and _listens(one) else None


def _port_of(held: socket.socket) -> int:
    try:
        return int(held.getsockname()[1])
    except OSError:
        return 0


def _listens(held: socket.socket) -> bool:
    try:
        return bool(held.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
    except OSError:
        return False


def _inode(held: socket.socket) -> int:
    return os.fstat(held.fileno()).st_ino


def _others(port: int, held: socket.socket) -> Set[int]:
    """The inodes of the other sockets that listen on the port."""
    return listening.listeners(port) - {_inode(held)}
