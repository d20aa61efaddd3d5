"""The ports that a minder holds from prepare on, and the one that its mesh listens on; one that takes over is patient."""

from __future__ import annotations

import errno
import socket

from tfdeploy.agent import wire
from tfdeploy.agent.annotations import List
from tfdeploy.agent.host import sockets

MESH_AGAIN_S = 5.0  # what a dead minder's connections may keep its port


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


def claim(port: int, takes_over: bool) -> socket.socket:
    """The mesh's. Raises PortTaken."""
    try:
        return sockets.claim(port, MESH_AGAIN_S if takes_over else 0.0)
    except OSError as error:
        raise PortTaken(port) from error
