"""run.links: whether this host reaches the other hosts of a prepared run, at the ports that the run has there.

Their minders hold these ports since they prepared: the mesh's port is listened on, a task's port is not yet, so that for it
"nobody listens" is a good answer. What swallows or refuses the way is found here, before anything of the program starts.
"""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple

from tfdeploy.agent import knock, runs, wire
from tfdeploy.agent.call import Call, Verb
from tfdeploy.agent.doctor import CLOSED, OPEN

MOST_TASKS = 256  # of the others' tasks that one host knocks at: in a large run every task is still knocked at by many
ENOUGH = 64  # that do not answer: more of them say nothing new


class _Door(NamedTuple):
    host: str
    task: str  # "" for the mesh
    address: str  # with its port

    def is_shut(self, said: str) -> bool:
        return said != OPEN and (said != CLOSED or not self.task)


def links(call: Call) -> Dict[str, Any]:
    """{"shut": [{"host", "task", "address", "why"}]}: the ports of the others that are not reached from here."""
    shut: List[Dict[str, str]] = []
    doors = _doors(runs.paths_of(call).part())
    for first in range(0, len(doors), knock.AT_ONCE):
        if len(shut) >= ENOUGH:
            break
        shut += _knock(doors[first : first + knock.AT_ONCE])
    return {"shut": shut}


def _doors(part: wire.HostPart) -> List[_Door]:
    """The others' ports, the mesh's first; each host begins with who comes after it, so that not all knock at one."""
    hosts = [each.host for each in part.mesh]
    own = hosts.index(part.host)
    place = {host: (number - own) % len(hosts) for number, host in enumerate(hosts)}
    mesh = [_Door(each.host, "", _address(each.address, each.port)) for each in part.mesh]
    tasks = [_Door(each.host, each.task, each.address) for each in part.peers if each.address]
    for doors in (mesh, tasks):
        doors.sort(key=lambda door: place[door.host])
    return [door for door in mesh + tasks[:MOST_TASKS] if door.host != part.host]


def _knock(doors: List[_Door]) -> List[Dict[str, str]]:
    """Those that are shut when asked twice: the first packet on a way may be lost."""
    for _ in range(2):
        said = knock.knock(door.address for door in doors)
        doors = [door for door in doors if door.is_shut(said[door.address])]
    return [dict(door._asdict(), why=said[door.address]) for door in doors]


def _address(host: str, port: int) -> str:
    return "%s:%d" % ("[%s]" % host if ":" in host else host, port)


VERBS: Dict[str, Verb] = {"run.links": links}
