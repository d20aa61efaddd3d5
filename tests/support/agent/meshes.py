"""Connect the simulated hosts of one run by their meshes.

A mesh is one host's end of the connections through which the minders of a run exchange messages. A
minder is the process that watches a run on its host. Here the test plays the minders.
"""

from __future__ import annotations

from support.agent.cluster import Cluster
from tfdeploy.agent import wire
from tfdeploy.agent.host.network import sockets
from tfdeploy.agent.host.network.guarded_ports import GuardedPorts
from tfdeploy.agent.mesh.mesh import Mesh
from tfdeploy.agent.mesh.shared_state import KnownRunState

NAMES = ["n1", "n2", "n3"]


class Meshes:
    """The meshes of a cluster with the hosts NAMES. `join` creates the mesh of one host. worker:0
    on n1 is the deciding task, whose result is the result of the run.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.hosts, self.certs, self.wait_until = cluster.hosts, cluster.certs, cluster.wait_until
        self._made: dict[str, Mesh] = {}
        self._addresses = [
            wire.MeshHost(name, "127.0.0.1", cluster.hosts[name].mesh_port) for name in NAMES
        ]
        self._peers = [
            wire.Peer(task=f"worker:{index}", role="worker", host=name, deciding=index == 0)
            for index, name in enumerate(NAMES)
        ]

    def join(
        self,
        name: str,
        known: KnownRunState = KnownRunState(),  # noqa: B008
        guarded: GuardedPorts | None = None,
    ) -> Mesh:
        """Create the mesh of the host `name`, which then listens for connections. `known`: what
        this host knows about the run. `guarded`: the guard of the ports of this host's tasks.
        """
        part = wire.HostPart(
            run="r1",
            job="digits",
            mode="async",
            host=name,
            plan_digest="d",
            release="c",
            peers=self._peers,
            mesh=self._addresses,
        )
        listener = sockets.bind_exclusively(self.hosts[name].mesh_port, 5.0)
        self._made[name] = Mesh(
            part, self.certs[name], listener, known, lambda: None, lambda *asked: None, guarded
        )
        return self._made[name]

    def close(self) -> None:
        for one in self._made.values():
            one.close()


def ended(task: str) -> KnownRunState:
    """Return what a host knows about the run after this task has ended."""
    return KnownRunState(ended={task: {"outcome": "stopped", "time": 1.0}})
