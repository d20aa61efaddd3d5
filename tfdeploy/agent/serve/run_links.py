"""run.links: whether this host reaches the other hosts of a prepared run, at the ports that the run has there.

Their minders hold these ports since they prepared: the mesh's port is listened on, a task's port is not yet, so that for it
"nobody listens" is a good answer. What swallows or refuses the way is found here, before anything of the program starts.
"""

from __future__ import annotations

import socket

from tfdeploy.agent import wire
from tfdeploy.agent.annotations import TYPE_CHECKING, Any, Dict, List
from tfdeploy.agent.health import reach
from tfdeploy.agent.health.diagnose import CLOSED, OPEN
from tfdeploy.agent.mesh import handshake_gate, tls
from tfdeploy.agent.record import NamedTuple
from tfdeploy.agent.run.folder import RunPaths
from tfdeploy.agent.serve import run_control, run_status
from tfdeploy.agent.serve.call import Call, Verb

if TYPE_CHECKING:
    from tfdeploy.agent.answers import Links, ShutPort

MANY = 16  # hosts; of more not every host tries every port: a kernel's table of neighbours is full at 1024, in a lab for all
NEXT = 3  # of so many that come after it each host tries the ports then,
ANSWER_S = 5.0
SERVING = 8  # and of so many that serve


class _Port(NamedTuple):
    host: str
    task: str  # "" for the mesh
    address: str  # with its port

    def is_shut(self, said: str) -> bool:
        return said != OPEN and (said != CLOSED or not self.task)

    def shut(self, why: str) -> ShutPort:
        return {"host": self.host, "task": self.task, "address": self.address, "why": why}


def links(call: Call) -> Links:
    """{"asked": [hosts], "shut": [{"host", "task", "address", "why"}]}: which were tried, and what is not reached from here."""
    paths = run_status.paths_of(call)
    run_control.refuse_ended(paths, also=("ending",))
    part = paths.part()
    asked = _asked(part)
    ports = _ports(part, asked)
    shut: List[ShutPort] = []
    for first in range(0, len(ports), reach.AT_ONCE):
        shut += _shut_ports(ports[first : first + reach.AT_ONCE])
    unreached = {each["host"] for each in shut}
    shut += _astray([port for port in ports if not port.task and port.host not in unreached], paths)
    return {"asked": asked, "shut": shut}


def _asked(part: wire.HostPart) -> List[str]:
    """The other hosts whose ports this one tries, first those that come after it: so not all try one host at once."""
    hosts = [each.host for each in part.mesh]
    own = hosts.index(part.host)
    others = hosts[own + 1 :] + hosts[:own]
    if len(hosts) <= MANY:
        return others
    serving = {peer.host for peer in part.peers if peer.serves}
    return others[:NEXT] + [host for host in others[NEXT:] if host in serving][:SERVING]


def _ports(part: wire.HostPart, asked: List[str]) -> List[_Port]:
    ports = []
    for host in asked:
        ports += [_Port(host, "", _address(each.address, each.port)) for each in part.mesh if each.host == host]
        ports += [_Port(host, peer.task, peer.address) for peer in part.peers if peer.host == host and peer.address]
    return ports


def _shut_ports(ports: List[_Port]) -> List[ShutPort]:
    """Those that are shut when asked twice: the first packet on a way may be lost."""
    for _ in range(2):
        said = reach.try_ports(port.address for port in ports)
        ports = [port for port in ports if port.is_shut(said[port.address])]
    return [port.shut(said[port.address]) for port in ports]


def _astray(ports: List[_Port], paths: RunPaths) -> List[ShutPort]:
    """Those mesh ports at which somebody else answers: a name or an address that leads to another host, or out of the run."""
    certs = paths.certificates()
    if not certs or not ports:
        return []
    client = tls.contexts(certs)[1]
    said: Dict[str, str] = {}

    def ask(port: _Port) -> None:
        said[port.host] = _who(port, client, handshake_gate.token(certs["ca"], port.host))

    reach.ask_all(ask, ports, 2 * ANSWER_S)
    return [port.shut(said[port.host]) for port in ports if said.get(port.host)]


def _who(asked: _Port, client: Any, token: str) -> str:
    """Who answers in place of that host, in words; "": itself, or nobody who can be told."""
    import ssl

    name, _, port = asked.address.rpartition(":")
    try:
        plain = socket.create_connection((name.strip("[]"), int(port)), timeout=ANSWER_S)
        with plain, client.wrap_socket(plain, server_hostname=token) as channel:
            found = tls.peer_name(channel)
    except ssl.SSLError as error:  # one that hangs up has its reasons, and may only be busy
        foreign = error.reason in ("WRONG_VERSION_NUMBER", "CERTIFICATE_VERIFY_FAILED")
        return "no host of this run answers" if foreign else ""
    except (OSError, ValueError):
        return ""
    return "" if found == asked.host else "%s answers" % found


def _address(host: str, port: int) -> str:
    return "%s:%d" % ("[%s]" % host if ":" in host else host, port)


VERBS: Dict[str, Verb] = {"run.links": links}
