"""The IP addresses that names have on this host, by its own resolver: where its tasks would connect."""

from __future__ import annotations

import socket
import threading
import time

from tfdeploy.agent.annotations import Callable, Dict, List

WITHIN_S = 3.0  # for all names: a name server may be dead
_AT_ONCE = 16
_MOST_ADDRESSES = 16  # of one name


def start(names: List[str]) -> Callable[[], Dict[str, List[str]]]:
    """Begins to look them up. The function that it returns waits, and gives name -> addresses, sorted.

    [] is of a name that does not exist. One that no server told about within WITHIN_S is left out."""
    found: Dict[str, List[str]] = {}
    waiting, until = list(dict.fromkeys(names)), time.monotonic() + WITHIN_S

    def look_up() -> None:
        while waiting and time.monotonic() < until:
            try:
                name = waiting.pop()
            except IndexError:  # another thread took the last one
                return
            try:
                found[name] = _addresses(name)
            except OSError:
                pass  # unknown, for now

    threads = [threading.Thread(target=look_up, daemon=True) for _ in range(min(_AT_ONCE, len(waiting)))]
    for thread in threads:
        thread.start()

    def answer() -> Dict[str, List[str]]:
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))
        return dict(found)

    return answer


def _addresses(name: str) -> List[str]:
    """Raises OSError where the name server gives no answer."""
    try:
        rows = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except UnicodeError:
        return []
    except socket.gaierror as error:
        if error.errno == socket.EAI_AGAIN:
            raise
        return []
    return sorted({str(row[4][0]).partition("%")[0] for row in rows})[:_MOST_ADDRESSES]
