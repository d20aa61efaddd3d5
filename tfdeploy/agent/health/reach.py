"""Test whether a port of the run accepts connections. A test opens one connection and closes it at
once. Also find names of other hosts that resolve to this host, and proxies through which gRPC would
connect to other tasks.

Ports must not be tested often: open connections disturb a TensorFlow server, and a server that is
frozen keeps even the connections that this host has closed.
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

CONNECT_TIMEOUT_S = 3.0  # limits the time to connect
NO_ANSWER = "no answer"
TURNED_AWAY = "turned away"
# Limits the wait for the first byte from a guarded port. A TensorFlow server sends first. If no
# server listens, the agent's socket accepts the connection and closes it without a byte.
FIRST_BYTE_TIMEOUT_S = 1.0
# The environment variables that name a proxy, in the order in which gRPC reads them.
_PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")


def try_ports(addresses: Iterable[str], guarded: Collection[str] = ()) -> Dict[str, str]:
    """Return {"host:port": result}. The result is "open", "closed" (no process listens there), or
    the reason why there was no answer.

    `guarded`: the addresses whose ports guarded_ports.py guards. There, a connection that is
    accepted does not prove that the task listens: the agent's own socket may have accepted it.
    """
    # These modules are imported only here, because they are needed only once a task is stalled.
    from tfdeploy.agent.host.network import port_probe, resolving

    distinct = list(dict.fromkeys(addresses))
    rows = resolving.resolve(_host_name(address) for address in distinct)
    reasons, targets = {}, {}
    for address in distinct:
        row = rows[_host_name(address)]
        if isinstance(row, str):
            reasons[address] = row
            continue
        read = (1, FIRST_BYTE_TIMEOUT_S) if address in guarded else (0, 0.0)
        targets[address] = port_probe.Target(row[0], int(address.rpartition(":")[2]), *read)
    answers = port_probe.probe(list(targets.values()), CONNECT_TIMEOUT_S)
    for address, answer in zip(targets, answers):  # noqa: B905 - Python 3.8 knows no strict
        reasons[address] = _describe_answer(answer, address in guarded)
    return reasons


def _describe_answer(answer: port_probe.Answer, is_guarded: bool) -> str:
    if is_guarded and answer.error == errno.ECONNRESET:
        return "%s, from %s" % (TURNED_AWAY, answer.source)
    if answer.connected:
        return CLOSED if answer.ended else OPEN
    return _describe_errno(answer.error)


def _host_name(address: str) -> str:
    return address.rpartition(":")[0].strip("[]")


def firewalled_task_addresses(part: wire.HostPart) -> Set[str]:
    """Return the addresses of tasks on hosts that close the run's ports to all machines outside the
    run."""
    if part.guarded is None:
        return {peer.address for peer in part.peers} if part.protect != "none" else set()
    return {peer.address for peer in part.peers if peer.host in part.guarded}


def _describe_errno(code: int) -> str:
    texts = {0: OPEN, errno.ECONNREFUSED: CLOSED, errno.ETIMEDOUT: NO_ANSWER}
    return texts.get(code) or os.strerror(code).lower()


def describe_error(error: BaseException) -> str:
    """Return a result as `try_ports` does: "open", "closed" or why there was no answer. `error`:
    the error with which a connection over the mesh failed."""
    if isinstance(error, socket.timeout):
        return NO_ANSWER
    if isinstance(error, ssl.SSLError):
        return OPEN
    return _describe_errno(error.errno) if isinstance(error, OSError) and error.errno else OPEN


def find_loopback_names(addresses: Iterable[str]) -> Dict[str, str]:
    """Return {address: text} for the addresses whose host name resolves to a loopback address, for
    example {"n3:2222": "n3 resolves to 127.0.1.1"}."""
    from tfdeploy.agent.host.network import resolving

    rows = resolving.resolve(
        name for name in map(_host_name, addresses) if not peer_filter.is_address(name)
    )
    home = {name: resolving.first_loopback(replies) for name, replies in rows.items()}
    return {
        address: "%s resolves to %s" % (_host_name(address), home[_host_name(address)])
        for address in addresses
        if home.get(_host_name(address))
    }


def find_proxy_variable(env: Mapping[str, str], addresses: List[str]) -> Optional[str]:
    """Return the environment variable that makes gRPC use a proxy for one of these addresses.
    Return None if gRPC connects to all of them directly."""
    exceptions = (env.get("no_grpc_proxy") or env.get("no_proxy") or "").split(",")
    suffixes = tuple(filter(None, map(str.strip, exceptions)))
    if all(_host_name(address).endswith(suffixes) for address in addresses):
        return None
    return next(filter(env.get, _PROXIES), None)
