"""The ports of a run's tasks, closed to strangers: a socket of ours listens on each and hangs up on all who are not let in.

It stays open for as long as a process has its descriptor, so that its place in the port's group never changes. Peers that come
before their server listens are told apart from strangers by how they are hung up on: they see an end, strangers a reset.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import threading
import time

from tfdeploy.agent import peer_filter
from tfdeploy.agent.annotations import Callable, Dict, Iterable, List, Optional
from tfdeploy.agent.host import sockets, steering, tcp_diag, thread_errors

_BACKLOG = 1024
_AT_ONCE = 256  # connections of one port between two looks at the others
_PAUSE_S = 0.01
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close() sends a reset
_NAME = "port."


class GuardedPorts:
    """`addresses`: of the run's hosts."""

    def __init__(self, addresses: Iterable[str]) -> None:
        self._lock = threading.Lock()
        self._addresses: List[str] = list(addresses)
        self._admitted = {peer_filter.prefix(each) for each in self._addresses}
        self._held: Dict[int, socket.socket] = {}
        self._behind: Dict[int, bool] = {}  # ports at which the task listened first
        self._closed = False

    # --- to begin

    def guard(self, port: int, inherited: Optional[int], hold: Callable[[], socket.socket], kept: Callable[[], bool]) -> bool:
        """False: no socket of this process listens. `inherited`: the descriptor that a dead minder had; `hold` binds the port;
        `kept`: whether a supervisor has the dead minder's socket. Raises OSError."""
        taken = _listening(inherited, port)
        if taken is not None:  # with its filter, which may have learned addresses
            self._held[port], self._behind[port] = taken, False
            return True
        listened = bool(sockets.listeners(port))
        held = hold()
        self._held[port], self._behind[port] = held, listened
        if _port_of(held) != port or (listened and kept()):
            return False
        if not listened:
            self._attach(port)  # at no moment it listens without
        # listen() and the next run look at what connections leave behind (TIME_WAIT). No other socket can listen beside this one.
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.listen(_BACKLOG)
        self._attach(port)  # by listen() it joined the group of the task's socket, if there is one
        return True

    def begin(self) -> None:
        """From now on strangers are hung up on."""
        for held in self._held.values():
            held.setblocking(False)
        threading.Thread(target=self._loop, daemon=True).start()

    # --- for the minder

    def descriptors(self) -> Dict[str, int]:
        """For descriptors.leave."""
        return {_NAME + str(port): held.fileno() for port, held in self._held.items() if _listens(held)}

    def open_to_all(self) -> Dict[int, str]:
        """Port -> the address at which a program listens apart from the group that the filter covers."""
        held = [os.fstat(held.fileno()).st_ino for held in self._held.values()]
        return tcp_diag.open_to_all(list(self._held), held)

    def is_admitted(self, address: str) -> bool:
        try:
            one = peer_filter.prefix(address)
        except ValueError:
            return False
        return one in self._admitted or peer_filter.is_loopback(one)

    def admit(self, address: str) -> bool:
        """One more address of a host of the run, as it was proved. False: it was known. Raises OSError: no room in the filter."""
        with self._lock:
            if self.is_admitted(address):
                return False
            self._addresses.append(address)
            self._admitted.add(peer_filter.prefix(address))
            for port, held in self._held.items():
                if _listens(held):
                    self._attach(port)
            return True

    def before_start(self, port: Optional[int]) -> None:
        """No task listens on that port now: the next one to listen is behind our socket."""
        with self._lock:
            if port is not None and self._behind.get(port) and _listens(self._held[port]):
                self._behind[port] = False
                self._attach(port)

    def close(self) -> None:
        self._closed = True
        for held in self._held.values():
            held.close()
        self._held = {}

    # --- one port

    def _attach(self, port: int) -> None:
        peers, others = (0, 1) if self._behind[port] else (1, 0)
        steering.attach(self._held[port], peer_filter.program(self._addresses, peers, others))

    def _loop(self) -> None:
        while not self._closed:
            try:
                ready = select.select([held for held in self._held.values() if _listens(held)], [], [], 1.0)[0]
                for held in ready:
                    self._hang_up(held)
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
            if not self.is_admitted(str(address[0])):
                caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            caller.close()


def inherited_port(inherited: Dict[str, int], port: int) -> Optional[int]:
    return inherited.get(_NAME + str(port))


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
