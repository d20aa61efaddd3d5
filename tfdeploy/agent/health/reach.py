"""Whether a port of the run accepts connections: one is made, and closed at once.

A server of TensorFlow must not be left with open connections, and a frozen one keeps those that were closed: try seldom.
Also wrong routes to other tasks: host names that mean this host, proxies.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import ssl
import threading
import time

from tfdeploy.agent import wire
from tfdeploy.agent.annotations import Any, Callable, Collection, Dict, Iterable, List, Mapping, Optional, Set, Tuple
from tfdeploy.agent.health.diagnose import CLOSED, OPEN

WITHIN_S = 3.0
AT_ONCE = 64
NO_ANSWER = "no answer"
TURNED_AWAY = "turned away"
HUNG_UP_S = 1.0  # a server of TensorFlow speaks first, and a guarded port without one hangs up
_PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")  # in the order in which gRPC asks


def try_ports(addresses: Iterable[str], within_s: float = WITHIN_S, guarded: Collection[str] = ()) -> Dict[str, str]:
    """ "host:port" -> open, closed (no process listens), or why there was no answer. At most 64 of them are tried.

    `guarded`: those that guarded_ports.py holds, so one that accepts may be closed, or open to others."""
    found: Dict[str, str] = {}
    waiting: Dict[socket.socket, str] = {}
    accepted: Dict[socket.socket, str] = {}
    for address in list(addresses)[:AT_ONCE]:
        try:
            one, code = _begin(address)
        except OSError as error:
            found[address] = error.strerror or str(error)
            continue
        if code == errno.EINPROGRESS:
            waiting[one] = address
        elif address in guarded and code == 0:
            accepted[one], found[address] = address, OPEN
        else:
            found[address] = _reason(code)
            one.close()
    deadline = time.monotonic() + within_s
    while waiting and time.monotonic() < deadline:
        _, ready, _ = select.select([], list(waiting), [], max(0.0, deadline - time.monotonic()))
        for one in ready:
            address = waiting.pop(one)
            code = one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            found[address] = _reason(code)
            if address in guarded and code == 0:
                accepted[one] = address
                continue
            if address in guarded and code == errno.ECONNRESET:
                found[address] = _turned_away(one)
            one.close()
    for one, address in waiting.items():
        found[address] = NO_ANSWER
        one.close()
    found.update(_hung_up(accepted))
    return found


def guarded_addresses(part: wire.HostPart) -> Set[str]:
    """Those of tasks whose hosts turn strangers away."""
    if part.guarded is None:
        return {peer.address for peer in part.peers} if part.protect != "none" else set()
    return {peer.address for peer in part.peers if peer.host in part.guarded}


def _turned_away(one: socket.socket) -> str:
    return "%s, from %s" % (TURNED_AWAY, one.getsockname()[0])


def _hung_up(accepted: Dict[socket.socket, str]) -> Dict[str, str]:
    """Address -> closed or turned away, of those connections that are ended within HUNG_UP_S."""
    found: Dict[str, str] = {}
    deadline = time.monotonic() + HUNG_UP_S
    waiting = set(accepted)
    while waiting and time.monotonic() < deadline:
        for one in select.select(list(waiting), [], [], max(0.0, deadline - time.monotonic()))[0]:
            waiting.discard(one)
            try:
                if not one.recv(1):
                    found[accepted[one]] = CLOSED
            except ConnectionResetError:
                found[accepted[one]] = _turned_away(one)
            except OSError:
                pass
    for one in accepted:
        one.close()
    return found


def ask_all(ask: Callable[[Any], object], addresses: Iterable[Any], within_s: float) -> None:
    """Calls `ask(address)` for each on a thread of its own. Returns after `within_s` at the latest."""
    threads = [threading.Thread(target=ask, args=(address,), daemon=True) for address in addresses]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + within_s
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))


def _begin(address: str) -> Tuple[socket.socket, int]:
    name, _, port = address.rpartition(":")
    family, kind, protocol, _, where = socket.getaddrinfo(name.strip("[]"), int(port), type=socket.SOCK_STREAM)[0]
    one = socket.socket(family, kind, protocol)
    one.setblocking(False)
    return one, one.connect_ex(where)


def _reason(code: int) -> str:
    if code == errno.ETIMEDOUT:
        return NO_ANSWER
    return {0: OPEN, errno.ECONNREFUSED: CLOSED}.get(code) or os.strerror(code).lower()


def reason_of(error: BaseException) -> str:
    """The same words for an error of one of our connections."""
    if isinstance(error, socket.timeout):
        return NO_ANSWER
    if isinstance(error, ssl.SSLError):
        return OPEN
    return _reason(error.errno) if isinstance(error, OSError) and error.errno else OPEN


def resolves_to_this_host(address: str) -> Optional[str]:
    """ "n3 resolves to 127.0.1.1" where the name of another host means this one; None: it does not, or is no name."""
    name = address.rpartition(":")[0].strip("[]")
    try:
        found = {row[4][0] for row in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)}
    except (OSError, UnicodeError):
        return None
    home = sorted(str(each) for each in found if str(each).startswith("127.") or each == "::1")
    return "%s resolves to %s" % (name, home[0]) if home and name not in home else None


def proxy_between(env: Mapping[str, str], addresses: List[str]) -> Optional[str]:
    """The variable by which gRPC would go through a proxy to one of these addresses; None: it would not."""
    name = next((name for name in _PROXIES if env.get(name)), None)
    if name is None:
        return None
    left_out = [each.strip() for each in (env.get("no_grpc_proxy") or env.get("no_proxy") or "").split(",") if each.strip()]
    hosts = [address.rpartition(":")[0].strip("[]") for address in addresses]
    return name if any(not any(host.endswith(end) for end in left_out) for host in hosts) else None
