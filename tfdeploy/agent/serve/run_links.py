"""run.links: whether this host reaches the other hosts of a prepared run, at the ports that the run has there.

Their minders hold these ports since they prepared: the mesh's port is listened on, a task's port is not yet, so that for it
"nobody listens" is a good answer. What swallows or refuses the way is found here, before anything of the program starts.
"""

from __future__ import annotations

import socket
from typing import NamedTuple

from tfdeploy.agent import wire
from tfdeploy.agent.annotations import Any, Dict, List
from tfdeploy.agent.health import reach
from tfdeploy.agent.health.diagnose import CLOSED, OPEN
from tfdeploy.agent.host.atomic import read_json
from tfdeploy.agent.mesh import handshake_gate, tls
from tfdeploy.agent.run.folder import RunPaths
from tfdeploy.agent.serve import run_control, run_status
from tfdeploy.agent.serve.call import Call, Verb

MANY = 16  # hosts of a run in which not all knock at all: a kernel's table of neighbours is full at 1024, in a lab for all hosts
NEXT = 3  # of so many that come after it each host knocks at the ports then,
ANSWER_S = 5.0
SERVING = 8  # and of so many that serve


class _Door(NamedTuple):
    host: str
    task: str  # "" for the mesh
    address: str  # with its port

    def is_shut(self, said: str) -> bool:
        return said != OPEN and (said != CLOSED or not self.task)


def links(call: Call) -> Dict[str, Any]:
    """{"asked": [hosts], "shut": [{"host", "task", "address", "why"}]}: whom it knocked at, and what is not reached from here."""
    paths = run_status.paths_of(call)
    run_control.refuse_ended(paths, also=("ending",))
    part = paths.part()
    asked = _asked(part)
    doors = _doors(part, asked)
    shut: List[Dict[str, str]] = []
    for first in range(0, len(doors), reach.AT_ONCE):
        shut += _knock(doors[first : first + reach.AT_ONCE])
    unreached = {each["host"] for each in shut}
    shut += _astray([door for door in doors if not door.task and door.host not in unreached], paths)
    return {"asked": asked, "shut": shut}


def _asked(part: wire.HostPart) -> List[str]:
    """The other hosts at whose ports this one knocks, those first that come after it: not all knock at one at once."""
    hosts = [each.host for each in part.mesh]
    own = hosts.index(part.host)
    others = hosts[own + 1 :] + hosts[:own]
    if len(hosts) <= MANY:
        return others
    serving = {peer.host for peer in part.peers if peer.serves}
    return others[:NEXT] + [host for host in others[NEXT:] if host in serving][:SERVING]


def _doors(part: wire.HostPart, asked: List[str]) -> List[_Door]:
    doors = []
    for host in asked:
        doors += [_Door(host, "", _address(each.address, each.port)) for each in part.mesh if each.host == host]
        doors += [_Door(host, peer.task, peer.address) for peer in part.peers if peer.host == host and peer.address]
    return doors


def _knock(doors: List[_Door]) -> List[Dict[str, str]]:
    """Those that are shut when asked twice: the first packet on a way may be lost."""
    for _ in range(2):
        said = reach.knock(door.address for door in doors)
        doors = [door for door in doors if door.is_shut(said[door.address])]
    return [dict(door._asdict(), why=said[door.address]) for door in doors]


def _astray(doors: List[_Door], paths: RunPaths) -> List[Dict[str, str]]:
    """Those mesh ports at which somebody else answers: a name or an address that leads to another host, or out of the run."""
    certs = read_json(paths.file("mesh.json"))
    if not certs or not doors:
        return []
    client = tls.contexts(certs)[1]
    said: Dict[str, str] = {}

    def ask(door: _Door) -> None:
        said[door.host] = _who(door, client, handshake_gate.token(certs["ca"], door.host))

    reach.ask_all(ask, doors, 2 * ANSWER_S)
    return [dict(door._asdict(), why=said[door.host]) for door in doors if said.get(door.host)]


def _who(door: _Door, client: Any, token: str) -> str:
    """Who answers in place of that host, in words; "": itself, or nobody who can be told."""
    import ssl

    name, _, port = door.address.rpartition(":")
    try:
        plain = socket.create_connection((name.strip("[]"), int(port)), timeout=ANSWER_S)
        with plain, client.wrap_socket(plain, server_hostname=token) as channel:
            found = tls.peer_name(channel)
    except ssl.SSLError as error:  # one that hangs up has its reasons, and may only be busy
        foreign = error.reason in ("WRONG_VERSION_NUMBER", "CERTIFICATE_VERIFY_FAILED")
        return "no host of this run answers" if foreign else ""
    except (OSError, ValueError):
        return ""
    return "" if found == door.host else "%s answers" % found


def _address(host: str, port: int) -> str:
    return "%s:%d" % ("[%s]" % host if ":" in host else host, port)


VERBS: Dict[str, Verb] = {"run.links": links}
