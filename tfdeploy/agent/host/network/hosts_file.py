"""Find host names of the cluster that resolve to a loopback address on this machine, for example
because of Debian's line `127.0.1.1 hostname`. Tasks on different hosts cannot connect to each other
by such a name.

Only the file /etc/hosts is read. No name server is asked, because the probe would have to wait if
the server does not answer.
"""

from __future__ import annotations

from tfdeploy.agent.annotations import List, Set

HOSTS_FILE = "/etc/hosts"


def find_names_on_loopback(names: List[str]) -> List[str]:
    """Return the elements of `names` that have only loopback addresses in the hosts file."""
    try:
        with open(HOSTS_FILE, encoding="utf-8", errors="replace") as lines:
            rows = [line.partition("#")[0].split() for line in lines]
    except OSError:
        return []
    loopback: Set[str] = set()
    reachable: Set[str] = set()
    for address, *called in filter(None, rows):
        (loopback if is_loopback(address) else reachable).update(name.lower() for name in called)
    return [name for name in names if name.lower() in loopback - reachable]


def is_loopback(address: str) -> bool:
    """Return whether the text is a loopback address as /etc/hosts or a resolver writes it."""
    return address.startswith("127.") or address == "::1"
