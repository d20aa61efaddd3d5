"""Cluster names that mean this machine itself to this machine: Debian's `127.0.1.1 hostname` breaks
a cluster.

Reads the hosts file alone: no name server is asked, so that a dead one costs the probe nothing.
"""

from __future__ import annotations

from tfdeploy.agent.annotations import List, Set


def resolving_to_loopback(names: List[str], hosts_file: str = "/etc/hosts") -> List[str]:
    """Those of `names` whose only addresses in the hosts file are loopback ones."""
    try:
        with open(hosts_file, encoding="utf-8", errors="replace") as lines:
            rows = [line.partition("#")[0].split() for line in lines]
    except OSError:
        return []
    loopback: Set[str] = set()
    reachable: Set[str] = set()
    for address, *called in filter(None, rows):
        (loopback if _is_loopback(address) else reachable).update(name.lower() for name in called)
    return [name for name in names if name.lower() in loopback - reachable]


def _is_loopback(address: str) -> bool:
    return address.startswith("127.") or address == "::1"
