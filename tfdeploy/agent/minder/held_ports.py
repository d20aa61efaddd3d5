"""Hold the ports of a run's tasks from the time when the run is prepared, so that no other program
takes them. Also bind the port of the mesh, on which the minder accepts connections of other
minders."""

from __future__ import annotations

import errno
import socket
from functools import partial

from tfdeploy.agent import wire
from tfdeploy.agent.annotations import TYPE_CHECKING, Dict, List, Optional
from tfdeploy.agent.host.network import sockets
from tfdeploy.agent.minder.actions import LocalTask
from tfdeploy.agent.run.folder import RunPaths

if TYPE_CHECKING:
    from tfdeploy.agent.host.network.guarded_ports import GuardedPorts

# How long a minder that replaces a dead one waits for the port of the mesh (the connections between
# the minders). Connections of the dead minder may still use this port for a moment.
MESH_PORT_WAIT_S = 5.0


class FirewallRefused(Exception):
    """The run's nftables table cannot be created. The text of the error says why. This class is not
    in firewall.py, so that a minder that needs no table does not load that module."""


class PortTaken(Exception):
    def __init__(self, port: int) -> None:
        super().__init__("port %d" % port)
        self.port = port


def hold_ports(part: wire.HostPart, may_be_bound: bool) -> List[socket.socket]:
    """Return one socket for each port of this host's tasks. The sockets are bound, so that no other
    program can take these ports. `may_be_bound`: True if tasks may already run and have bound their
    ports. Raises PortTaken."""
    return [_hold_port(spec.port, may_be_bound) for spec in part.tasks if spec.port is not None]


def guard_ports(
    paths: RunPaths, part: wire.HostPart, may_be_bound: bool, state: wire.HostRunState
) -> Optional[GuardedPorts]:
    """Hold the ports of this host's tasks, and close them to strangers. Return None if the run does
    not protect its ports. `state`: the stored state of the run on this host. It names the addresses
    that an earlier minder has admitted. Raises PortTaken."""
    if part.protect == "none":
        return None
    from tfdeploy.agent.host import descriptors
    from tfdeploy.agent.host.network.guarded_ports import GuardedPorts

    learned = state.admitted or dict.fromkeys(state.learned, "")
    guarded = GuardedPorts(part.allowed, learned, state.not_admitted)
    inherited = descriptors.inherited_descriptors()
    for spec in part.tasks:
        if spec.port is not None:
            bind_port = partial(_hold_port, spec.port, may_be_bound)
            inode = paths.status(spec.task).guard_inode
            try:
                guarded.guard_port(spec.port, inherited.get(spec.port), bind_port, inode)
            except OSError as error:
                raise PortTaken(spec.port) from error
    guarded.start()
    return guarded


def explain_open_ports(part: wire.HostPart, guarded: GuardedPorts) -> Dict[str, str]:
    """Return {task: why its port is open to everybody}. Tasks whose ports are protected are left
    out."""
    addresses = guarded.find_unfiltered_listeners()
    reason = (
        "port %d is open to everybody: the task's program listens on %s only, so tfdeploy's filter "
        "does not protect the port"
    )
    return {
        spec.task: reason % (spec.port, addresses[spec.port])
        for spec in part.tasks
        if spec.port in addresses
    }


def _hold_port(port: int, may_be_bound: bool) -> socket.socket:
    try:
        return sockets.hold_port(port, may_be_bound=may_be_bound)
    except OSError as error:
        if may_be_bound and error.errno == errno.EADDRINUSE:
            # The task has bound the port exclusively. No other process can take it, so the minder
            # need not hold it. An unbound socket is returned instead of a bound one.
            return socket.socket()
        raise PortTaken(port) from error


class ExclusivePorts:
    """The ports that programs bind exclusively, so that a task cannot share its port with the
    minder. The minder holds such a port only while the task is not alive, and releases the port
    just before the task starts."""

    def __init__(self, part: wire.HostPart) -> None:
        self._ports = {spec.task: spec.own_port for spec in part.tasks if spec.own_port is not None}
        self._held: Dict[str, socket.socket] = {}

    def hold_all(self) -> None:
        """Hold the ports of all tasks. Called before any task has started. Raises PortTaken."""
        for task, port in self._ports.items():
            self._held[task] = _hold_port(port, may_be_bound=False)

    def sync_held_ports(self, local_tasks: Dict[str, LocalTask]) -> None:
        """Hold the ports of the tasks that are not alive, and release the ports of the others. No
        error is raised if another process has taken the port of a dead task. The next start of that
        task then fails."""
        for task, port in self._ports.items():
            if local_tasks[task].is_supervised or local_tasks[task].status.state not in (
                "pending",
                *wire.OVER,
            ):
                self.release(task)
            elif task not in self._held:
                try:
                    self._held[task] = _hold_port(port, may_be_bound=False)
                except PortTaken:
                    pass

    def release(self, task: str) -> None:
        if task in self._held:
            self._held.pop(task).close()

    def close(self) -> None:
        """Release all ports. Later calls of sync_held_ports do not hold them again."""
        for task in self._ports:
            self.release(task)
        self._ports = {}


def bind_mesh_port(port: int, takes_over: bool) -> socket.socket:
    """Return a socket that is bound to the port of the mesh. `takes_over`: True if this minder
    replaces a dead one. The function then waits until the dead minder's connections no longer use
    the port. Raises PortTaken."""
    try:
        return sockets.bind_exclusively(port, MESH_PORT_WAIT_S if takes_over else 0.0)
    except OSError as error:
        raise PortTaken(port) from error
