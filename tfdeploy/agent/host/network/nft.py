"""Write the text of one nftables table that lets only the hosts and the user of a run connect to
the ports of the run. Pure: starts no program.

The table has an owner (`flags owner`): only the process that created it can change it, and the
kernel removes the table when that process ends. The text is a single line, so nft creates either
the whole table or nothing. It contains only numbers, checked addresses and a name without special
characters.
"""

from __future__ import annotations

import hashlib
import re

from tfdeploy.agent import peer_filter
from tfdeploy.agent.annotations import Iterable, List, Tuple
from tfdeploy.agent.record import NamedTuple

_VERSIONS = ((4, "ip", "ipv4_addr"), (6, "ip6", "ipv6_addr"))
_SYN = "tcp flags & (fin | syn | rst | ack) == syn"


class ClosedPorts(NamedTuple):
    """The ports that the table closes on one host, and who may still use them."""

    name: str  # the name of the table
    # Uid of the only user of this host whose processes may connect to the run's ports, on this host
    # and on others.
    user: int
    ports: Tuple[int, ...]  # the run's ports on this host
    allowed: Tuple[str, ...]  # addresses that may connect to the run's ports on this host
    elsewhere: Tuple[Tuple[str, int], ...] = ()  # (address, port) pairs of the run on other hosts


def table_name_prefix(host_dir: str, run: str) -> str:
    """Return the common prefix of the names of this run's tables on this host. Tables of other runs
    have other prefixes."""
    readable = re.sub(r"[^A-Za-z0-9]", "_", run)[:64]
    digest = hashlib.sha256(host_dir.encode("utf-8", "surrogateescape")).hexdigest()
    return "tfdeploy_%s_%s" % (readable, digest[:12])


def build_table(closed: ClosedPorts) -> str:
    """Return the table as one line for `nft -i`. Raises ValueError if an address or a port is
    invalid, or if there are no ports."""
    if not closed.ports:
        raise ValueError("a table without ports")
    commands = [
        "add table inet %s { flags owner; }" % closed.name,
        _format_set(closed, "ports", "inet_service", map(_format_port, closed.ports)),
    ]
    for version, _, kind in _VERSIONS:
        allowed = _addresses_of_version(version, closed.allowed)
        endpoints = _format_endpoints(version, closed.elsewhere)
        commands += [
            _format_set(closed, "allowed%d" % version, kind, allowed),
            _format_set(closed, "run%d" % version, kind + " . inet_service", endpoints),
        ]
    commands += _input_chain(closed) + _output_chain(closed) + _forward_chain(closed)
    return "; ".join(commands) + "\n"


def _for_each_version(rule: str) -> List[str]:
    """Return the rule once for each IP version. `rule` contains %s for the name of the header and
    %d for the version, in this order."""
    return [rule % (header, version) for version, header, _ in _VERSIONS]


def _input_chain(closed: ClosedPorts) -> List[str]:
    """Return the rules for packets that arrive over a network. Packets that this host sends to
    itself are accepted here, because the rules of `_output_chain` have checked them."""
    rules = ['iif "lo" accept', "tcp dport != @ports accept"]
    rules += _for_each_version("%s saddr @allowed%d accept")
    return _format_chain(closed, "input", rules + ["meta l4proto tcp reject with tcp reset"])


def _output_chain(closed: ClosedPorts) -> List[str]:
    """Return the rules for packets that users of this host send. Root is restricted like other
    users, because a proxy that runs as root may connect on behalf of a stranger.

    When the kernel itself ends a connection, its packets belong to root or to no user, and must
    pass. So of the packets of root or of no user, only the first packet of a connection is
    rejected.
    """
    others = [
        "meta skuid %d accept" % closed.user,
        "meta skuid != 0 reject with tcp reset",
        _SYN + " reject with tcp reset",
    ]
    rules = ['oif "lo" tcp dport @ports jump others']
    rules += _for_each_version("%s daddr . tcp dport @run%d jump others")
    chain = ["add chain inet %s others" % closed.name, *_format_rules(closed, "others", others)]
    return chain + _format_chain(closed, "output", rules)


def _forward_chain(closed: ClosedPorts) -> List[str]:
    """Return the rules for packets that this host forwards. Without these rules, containers on this
    host could connect to the run on other hosts with this host's address as their source."""
    rules = _for_each_version("%s saddr @allowed%d accept")
    rules += _for_each_version("%s daddr . tcp dport @run%d reject with tcp reset")
    return _format_chain(closed, "forward", rules)


def _format_chain(closed: ClosedPorts, hook: str, rules: Iterable[str]) -> List[str]:
    """Return the commands that add a chain and its rules. The chain has the name of its hook."""
    chain = "add chain inet %s %s { type filter hook %s priority filter - 5; policy accept; }"
    return [chain % (closed.name, hook, hook), *_format_rules(closed, hook, rules)]


def _format_rules(closed: ClosedPorts, chain: str, rules: Iterable[str]) -> List[str]:
    return ["add rule inet %s %s %s" % (closed.name, chain, rule) for rule in rules]


def _format_set(closed: ClosedPorts, name: str, kind: str, elements: Iterable[str]) -> str:
    listed = sorted(set(elements))
    filled = " elements = { %s };" % ", ".join(listed) if listed else ""
    return "add set inet %s %s { type %s;%s }" % (closed.name, name, kind, filled)


def _format_endpoints(version: int, endpoints: Iterable[Tuple[str, int]]) -> List[str]:
    return [
        "%s . %s" % (address, _format_port(port))
        for each, port in endpoints
        for address in _addresses_of_version(version, [each])
    ]


def _addresses_of_version(version: int, addresses: Iterable[str]) -> List[str]:
    """Return the addresses that are of this IP version. An IPv4-mapped IPv6 address counts as IPv4.
    Raises ValueError."""
    of_version = []
    for text in addresses:
        if "%" in text:
            raise ValueError("%r has a zone" % text)
        address = peer_filter.parse_address(text)
        if address.version == version:
            of_version.append(str(address))
    return of_version


def _format_port(port: int) -> str:
    if not isinstance(port, int) or not 0 < port < 1 << 16:
        raise ValueError("%r is no port" % (port,))
    return "%d" % port
