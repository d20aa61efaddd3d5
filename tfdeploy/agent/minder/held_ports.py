"""The ports that a minder holds from prepare on, and the one that its mesh listens on; one that takes over is patient."""

from __future__ import annotations

import errno
import socket

from tfdeploy.agent import wire
from tfdeploy.agent.annotations import Dict, List
from tfdeploy.agent.host import sockets
from tfdeploy.agent.minder.actions import OwnTask

MESH_PORT_WAIT_S = 5.0  # what a dead minder's connections may keep its port


class PortTaken(Exception):
    def __init__(self, port: int) -> None:
        super().__init__("port %d" % port)
        self.port = port


def hold(part: wire.HostPart, beside: bool) -> List[socket.socket]:
    """Every port of the part's tasks. `beside`: the tasks may have theirs already. Raises PortTaken."""
    return [_hold(spec.port, beside) for spec in part.tasks if spec.port is not None]


def _hold(port: int, beside: bool) -> socket.socket:
    try:
        return sockets.hold(port, beside=beside)
    except OSError as error:
        if beside and error.errno == errno.EADDRINUSE:
            return socket.socket()  # the task has it for itself alone; nobody else can take it
        raise PortTaken(port) from error


class OwnPorts:
    """The ports that programs bind for themselves alone: held whenever their task is not alive, by nobody of ours otherwise."""

    def __init__(self, part: wire.HostPart) -> None:
        self._ports = {spec.task: spec.own_port for spec in part.tasks if spec.own_port is not None}
        self._held: Dict[str, socket.socket] = {}

    def hold(self) -> None:
        """All of them, before anything was started. Raises PortTaken."""
        for task, port in self._ports.items():
            self._held[task] = _hold(port, beside=False)

    def hold_idle(self, own: Dict[str, OwnTask]) -> None:
        """Again after a death, until the next start. Where somebody else has one by then, that start fails and says so."""
        for task, port in self._ports.items():
            idle = own[task].status.state in ("pending", "ended", "lost") and not own[task].supervised
            if not idle:
                self.release(task)
            elif task not in self._held:
                try:
                    self._held[task] = _hold(port, beside=False)
                except PortTaken:
                    pass

    def release(self, task: str) -> None:
        held = self._held.pop(task, None)
        if held is not None:
            held.close()

    def close(self) -> None:
        """For good."""
        for task in self._ports:
            self.release(task)
        self._ports = {}


def claim(port: int, takes_over: bool) -> socket.socket:
    """The mesh's. Raises PortTaken."""
    try:
        return sockets.claim(port, MESH_PORT_WAIT_S if takes_over else 0.0)
    except OSError as error:
        raise PortTaken(port) from error
