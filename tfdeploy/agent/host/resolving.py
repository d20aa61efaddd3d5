"""Resolves names with this host's own resolver: its tasks would connect to these IP addresses."""

from __future__ import annotations

import socket
import threading
import time

from tfdeploy.agent.annotations import Callable, Dict, List

TIMEOUT_S = 3.0  # for all names together: a name server may be dead
_MOST_THREADS = 16
_MOST_ADDRESSES = 16  # of one name


def start_lookups(names: List[str]) -> Callable[[], Dict[str, List[str]]]:
    """Start to resolve the names in threads. Returns a function that waits for name -> sorted
    addresses.

    A name that does not exist has no addresses ([]). A name without an answer within TIMEOUT_S is
    left out.
    """
    found: Dict[str, List[str]] = {}
    waiting, deadline = list(dict.fromkeys(names)), time.monotonic() + TIMEOUT_S

    def look_up() -> None:
        while waiting and time.monotonic() < deadline:
            try:
                name = waiting.pop()
            except IndexError:  # another thread took the last name
                return
            try:
                found[name] = _addresses(name)
            except OSError:
                pass  # no answer: the name is left out

    threads = [threading.Thread(target=look_up, daemon=True) for _ in range(min(_MOST_THREADS, len(waiting)))]
    for thread in threads:
        thread.start()

    def wait_for_answers() -> Dict[str, List[str]]:
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return dict(found)

    return wait_for_answers


def _addresses(name: str) -> List[str]:
    """Return the sorted addresses; none if the name does not exist. Raises OSError without an
    answer of a server."""
    try:
        rows = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except UnicodeError:
        return []
    except socket.gaierror as error:
        if error.errno == socket.EAI_AGAIN:
            raise
        return []
    return sorted({str(row[4][0]).partition("%")[0] for row in rows})[:_MOST_ADDRESSES]
