"""Write the text of one nftables table that keeps everything but the run out of the run's ports.
Pure: starts nothing.

The table is owned (`flags owner`): only the process that created it can change it, and the kernel
removes it when that process ends. The text is one line, so that nft creates the whole table in one
step or nothing. It contains only numbers, parsed addresses and a cleaned name.
"""

from __future__ import annotations

import hashlib
import re

from tfdeploy.agent import peer_filter
from tfdeploy.agent.annotations import Iterable, List, Tuple
from tfdeploy.agent.record import NamedTuple

_VERSIONS = ((4, "ip", "ipv4_addr"), (6, "ip6", "ipv6_addr"))
_SYN = "tcp flags & (fin | syn | rst | ack) == syn"


class Closed(NamedTuple):
    """The ports that the table closes on one host, and for whom they stay open."""

    name: str  # of the table
    user: int  # the only user of this host that may connect to the run, on any host
    ports: Tuple[int, ...]  # the run's ports on this host
    allowed: Tuple[str, ...]  # the addresses that may connect to these ports
    elsewhere: Tuple[Tuple[str, int], ...] = ()  # (address, port) of the run on other hosts


def table_name(host_dir: str, run: str) -> str:
    """Return the prefix of the names of this run's tables on this host. No other run has this
    prefix."""
    readable = re.sub(r"[^A-Za-z0-9]", "_", run)[:64]
    return "tfdeploy_%s_%s" % (
        readable,
        hashlib.sha256(host_dir.encode("utf-8", "surrogateescape")).hexdigest()[:12],
    )


def table(closed: Closed) -> str:
    """Return the table as one line for `nft -i`. Raises ValueError for an invalid address or port,
    or without ports."""
    if not closed.ports:
        raise ValueError("a table without ports")
    made = [
        "add table inet %s { flags owner; }" % closed.name,
        _set(closed, "ports", "inet_service", map(_port, closed.ports)),
    ]
    for version, _, kind in _VERSIONS:
        made.append(_set(closed, "allowed%d" % version, kind, _of_version(version, closed.allowed)))
        made.append(
            _set(
                closed,
                "run%d" % version,
                kind + " . inet_service",
                _pairs(version, closed.elsewhere),
            )
        )
    return "; ".join(made + _input(closed) + _output(closed) + _forward(closed)) + "\n"


def _input(closed: Closed) -> List[str]:
    """Return the rules for packets that arrive over a network. Packets from this host to itself
    have passed `output`."""
    rules = ['iif "lo" accept', "tcp dport != @ports accept"]
    rules += ["%s saddr @allowed%d accept" % (header, version) for version, header, _ in _VERSIONS]
    return _chain(closed, "input", "input", rules + ["meta l4proto tcp reject with tcp reset"])


def _output(closed: Closed) -> List[str]:
    """Return the rules for packets that users of this host send. Root has no privilege, because a
    proxy that runs as root connects for strangers.

    The kernel itself sends packets as root or as no user, to end connections. So for these two,
    only the first packet of a connection is rejected.
    """
    others = [
        "meta skuid %d accept" % closed.user,
        "meta skuid != 0 reject with tcp reset",
        _SYN + " reject with tcp reset",
    ]
    rules = ['oif "lo" tcp dport @ports jump others']
    rules += [
        "%s daddr . tcp dport @run%d jump others" % (header, version)
        for version, header, _ in _VERSIONS
    ]
    chain = ["add chain inet %s others" % closed.name] + [
        "add rule inet %s others %s" % (closed.name, rule) for rule in others
    ]
    return chain + _chain(closed, "output", "output", rules)


def _forward(closed: Closed) -> List[str]:
    """Return the rules for packets that this host forwards. Otherwise its containers would reach
    the other hosts under this host's address."""
    rules = ["%s saddr @allowed%d accept" % (header, version) for version, header, _ in _VERSIONS]
    rules += [
        "%s daddr . tcp dport @run%d reject with tcp reset" % (header, version)
        for version, header, _ in _VERSIONS
    ]
    return _chain(closed, "forward", "forward", rules)


def _chain(closed: Closed, name: str, hook: str, rules: Iterable[str]) -> List[str]:
    made = "add chain inet %s %s { type filter hook %s priority filter - 5; policy accept; }" % (
        closed.name,
        name,
        hook,
    )
    return [made] + ["add rule inet %s %s %s" % (closed.name, name, rule) for rule in rules]


def _set(closed: Closed, name: str, kind: str, elements: Iterable[str]) -> str:
    listed = sorted(set(elements))
    filled = " elements = { %s };" % ", ".join(listed) if listed else ""
    return "add set inet %s %s { type %s;%s }" % (closed.name, name, kind, filled)


def _pairs(version: int, ends: Iterable[Tuple[str, int]]) -> List[str]:
    return [
        "%s . %s" % (address, _port(port))
        for each, port in ends
        for address in _of_version(version, [each])
    ]


def _of_version(version: int, addresses: Iterable[str]) -> List[str]:
    """Return the addresses of this IP version. An IPv4-mapped address counts as IPv4. Raises
    ValueError."""
    versions = []
    for text in addresses:
        if "%" in text:
            raise ValueError("%r has a zone" % text)
        address = peer_filter.address(text)
        if address.version == version:
            versions.append(str(address))
    return versions


def _port(port: int) -> str:
    if not isinstance(port, int) or not 0 < port < 1 << 16:
        raise ValueError("%r is no port" % (port,))
    return "%d" % port
