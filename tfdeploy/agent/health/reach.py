"""Test whether a port of the run accepts connections, with one connection that is closed at once.
Also find wrong routes to other tasks: host names that resolve to this host, and proxies.

Test seldom: a TensorFlow server must not be left with open connections, and a frozen server keeps
even closed ones.
"""

from __future__ import annotations

import errno
import os
import socket
import ssl

from tfdeploy.agent import peer_filter, wire
from tfdeploy.agent.annotations import (
    TYPE_CHECKING,
    Collection,
    Dict,
    Iterable,
    List,
    Mapping,
    Optional,
    Set,
)
from tfdeploy.agent.health.diagnose import CLOSED, OPEN

if TYPE_CHECKING:
    from tfdeploy.agent.host.network import port_probe

WITHIN_S = 3.0  # limits a connect
NO_ANSWER = "no answer"
TURNED_AWAY = "turned away"
# Limits the wait for the first byte. A TensorFlow server sends first; a guarded port without a
# server closes the connection.
HUNG_UP_S = 1.0
_PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")  # in gRPC's order


def try_ports(
    addresses: Iterable[str], within_s: float = WITHIN_S, guarded: Collection[str] = ()
) -> Dict[str, str]:
    """Return "host:port" -> open, closed (no process listens), or why there was no answer.

    `guarded`: the addresses that guarded_ports.py guards. There, a connection may be accepted by
    the agent's own socket.
    """
    # Imported here because they are needed only once a task is stalled.
    from tfdeploy.agent.host.network import port_probe, resolving

    asked = list(dict.fromkeys(addresses))
    rows = resolving.resolve(_name(address) for address in asked)
    reasons: Dict[str, str] = {}
    targets: Dict[str, port_probe.Target] = {}
    for address in asked:
        row = rows[_name(address)]
        if isinstance(row, str):
            reasons[address] = row
            continue
        read = (1, HUNG_UP_S) if address in guarded else (0, 0.0)
        targets[address] = port_probe.Target(row[0], int(address.rpartition(":")[2]), *read)
    answers = port_probe.probe(list(targets.values()), within_s)
    for address, answer in zip(targets, answers):  # noqa: B905 - Python 3.8 knows no strict
        reasons[address] = _state(answer, address in guarded)
    return reasons


def _state(answer: port_probe.Answer, guarded: bool) -> str:
    if guarded and answer.error == errno.ECONNRESET:
        return "%s, from %s" % (TURNED_AWAY, answer.source)
    if answer.connected:
        return CLOSED if answer.ended else OPEN
    return _reason(answer.error)


def _name(address: str) -> str:
    return address.rpartition(":")[0].strip("[]")


def guarded_addresses(part: wire.HostPart) -> Set[str]:
    """Return the addresses of tasks whose hosts close the ports to strangers."""
    if part.guarded is None:
        return {peer.address for peer in part.peers} if part.protect != "none" else set()
    return {peer.address for peer in part.peers if peer.host in part.guarded}


def _reason(code: int) -> str:
    if code == errno.ETIMEDOUT:
        return NO_ANSWER
    return {0: OPEN, errno.ECONNREFUSED: CLOSED}.get(code) or os.strerror(code).lower()


def reason_of(error: BaseException) -> str:
    """Return the text for an error of a connection over the mesh, in the same terms as
    `try_ports`."""
    if isinstance(error, socket.timeout):
        return NO_ANSWER
    if isinstance(error, ssl.SSLError):
        return OPEN
    return _reason(error.errno) if isinstance(error, OSError) and error.errno else OPEN


def names_of_this_host(addresses: Iterable[str]) -> Dict[str, str]:
    """Return address such as "n3:2222" -> "n3 resolves to 127.0.1.1", for names that resolve to
    this host."""
    from tfdeploy.agent.host.network import resolving

    rows = resolving.resolve(
        name for name in map(_name, addresses) if not peer_filter.is_address(name)
    )
    home = {name: resolving.loopback_in(replies) for name, replies in rows.items()}
    return {
        address: "%s resolves to %s" % (_name(address), home[_name(address)])
        for address in addresses
        if home.get(_name(address))
    }


def proxy_between(env: Mapping[str, str], addresses: List[str]) -> Optional[str]:
    """Return the variable that makes gRPC use a proxy to one of these addresses; None: gRPC
    connects directly."""
    name = next((name for name in _PROXIES if env.get(name)), None)
    if name is None:
        return None
    left_out = [
        each.strip()
        for each in (env.get("no_grpc_proxy") or env.get("no_proxy") or "").split(",")
        if each.strip()
    ]
    hosts = [_name(address) for address in addresses]
    return name if any(not any(host.endswith(end) for end in left_out) for host in hosts) else None
