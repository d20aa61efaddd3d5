"""Chooses the address by which the other hosts reach each host.

The address comes from the first of these sources that exists: the key `advertise`, an IP address in
the inventory, or the address at which the host's sshd was reached. An address is refused if a
cluster would hang with it, or would be open to the internet. This module resolves no host name. It
uses the IP addresses to which the hosts resolved the names.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tfdeploy.errors import Refused
from tfdeploy.model.facts import FactsByHost, HostFacts
from tfdeploy.model.inventory import Host
from tfdeploy.model.plan import Notes
from tfdeploy.text.names import fold_names, group_equal
from tfdeploy.text.units import list_first

# At most this many addresses of a host are used, because other hosts list them in packet filters,
# whose length is limited.
MOST_ADDRESSES = 64
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class AdvertisedAddress(NamedTuple):
    """An address without a port (IPv6 without brackets), and the source of the address as text."""

    address: str
    why: str


def advertised_address(host: Host, facts: HostFacts) -> AdvertisedAddress:
    """Return the address by which the other hosts reach this host.

    Raises Refused if the address is not known.
    """
    if host.advertise:
        return AdvertisedAddress(host.advertise.strip("[]"), "`advertise` in the inventory")
    literal = host.address.strip("[]")
    if _parse_ip(literal):
        return AdvertisedAddress(literal, "the inventory's address")
    if facts.ssh_server_address:
        return AdvertisedAddress(facts.ssh_server_address, "the address of its sshd")
    raise Refused(
        f"the address at which other hosts reach {host.name} is unknown: {host.address} is a name, "
        "and the host's sshd did not report the IP address of the connection",
        where=host.source or f"host {host.name}",
        next=f"write `advertise: ADDRESS` for {host.name} in the inventory",
    )


def refuse_or_note_addresses(
    advertised_by_host: Mapping[str, AdvertisedAddress],
    facts: FactsByHost,
    *,
    allow_public: bool,
) -> Notes:
    """Return notes on the addresses. Raises Refused for addresses that a cluster cannot use.

    These addresses are refused: a loopback address, unless all hosts have one; a name that some
    host resolves to a loopback address; an unusable address such as 0.0.0.0; and a public address.
    If `allow_public` is true, there is only a note on a public address.
    """
    loopback = {
        name: each for name, each in advertised_by_host.items() if is_loopback(each.address)
    }
    others = {
        name: each.address for name, each in advertised_by_host.items() if name not in loopback
    }
    for name, each in loopback.items():
        for other, address in others.items():
            raise Refused(
                f"the address of {name} is {each.address} ({each.why}): only {name} itself can "
                f"reach this address, and {other} ({address}) cannot",
                where=f"host {name}",
                next=f"write `advertise: ADDRESS` for {name} in the inventory: the address at "
                f"which {other} reaches it",
            )
    for name, address in others.items():
        _refuse_misleading_resolution(name, address, facts)
    notes = []
    for name, address in others.items():
        description = _public_address_text(address, facts)
        if description and not allow_public:
            raise Refused(
                f"the address of {name} in the cluster would be {description}: TensorFlow's "
                "servers have no authentication and run graphs from whoever reaches their ports",
                where=f"host {name}",
                next=f"write `advertise: PRIVATE-ADDRESS` for {name}, or accept it: `tfdeploy "
                "launch --allow-public`",
            )
        if description:
            notes.append(
                f"the address of {name} in the cluster is {description} (--allow-public): the "
                "hosts send their data unencrypted over the internet"
            )
    notes += filter(
        None, (_unequal_resolution_note(name, each, facts) for name, each in others.items())
    )
    notes += [
        f"{name} has {len(seen.addresses)} addresses: the other hosts accept connections only from "
        f"the first {MOST_ADDRESSES} of them"
        for name, seen in facts.items()
        if len(seen.addresses) > MOST_ADDRESSES
    ]
    return tuple(notes)


def source_addresses(host: Host, facts: HostFacts, resolved: Sequence[str]) -> tuple[str, ...]:
    """Return IP addresses from which this host's connections may come, at most MOST_ADDRESSES.

    An IPv4 address is never returned in its IPv6-mapped form. `resolved`: the IP addresses of the
    host name under which the cluster lists this host.
    """
    named = (advertised_address(host, facts).address, *resolved, *facts.addresses)
    distinct = dict.fromkeys(
        str(_without_ipv4_mapping(parsed))
        for each in named
        if (parsed := _parse_ip(each)) and not parsed.is_loopback
    )
    return tuple(distinct)[:MOST_ADDRESSES]


def resolved_addresses(name: str, facts: FactsByHost) -> tuple[str, ...]:
    """Return the IP addresses of a name in the cluster; () if the name is itself an IP address.

    An address is returned if at least half of the hosts that resolved the name report it.
    """
    if _parse_ip(name):
        return ()
    answers = [set(seen.resolved[name]) for seen in facts.values() if name in seen.resolved]
    candidates = dict.fromkeys(address for answer in answers for address in sorted(answer))
    return tuple(
        each for each in candidates if 2 * sum(each in answer for answer in answers) >= len(answers)
    )


def _without_ipv4_mapping(address: _Address) -> _Address:
    return getattr(address, "ipv4_mapped", None) or address


def is_loopback(address: str) -> bool:
    parsed = _parse_ip(address)
    return parsed.is_loopback if parsed else address == "localhost"


def notes(advertised_by_host: Mapping[str, AdvertisedAddress]) -> Notes:
    """Return notes that say where the addresses of the hosts come from, one for each source."""
    by_why = group_equal({name: each.why for name, each in advertised_by_host.items()})
    return tuple(f"addresses of {list_first(names, 6)}: {why}" for names, why in by_why)


def _parse_ip(address: str) -> _Address | None:
    try:
        return ipaddress.ip_address(address)
    except ValueError:
        return None


def is_public(address: str) -> bool:
    """Return whether the text is a public IP address. The result is False for a host name."""
    parsed = _parse_ip(address.partition("%")[0])
    return bool(parsed and _without_ipv4_mapping(parsed).is_global)


def _public_address_text(address: str, facts: FactsByHost) -> str:
    """Describe a public address for a message; return "" for an address that is not public.

    A name counts as public if at least one host resolves it to a public address.
    """
    if _parse_ip(address):
        return f"the public address {address}" if is_public(address) else ""
    for asked, seen in facts.items():
        for each in seen.resolved.get(address, ()):
            if is_public(each):
                return f"{address}, which {asked} resolves to the public address {each}"
    return ""


def _unequal_resolution_note(name: str, address: str, facts: FactsByHost) -> str:
    """Return a note if hosts resolve the same name to different addresses.

    Returns "" if all hosts that resolved the name agree, or if `address` is not a name.
    """
    if _parse_ip(address):
        return ""
    answers = {
        asked: tuple(sorted(seen.resolved[address]))
        for asked, seen in facts.items()
        if address in seen.resolved
    }
    groups = [
        (fold_names(hosts), ", ".join(answer[:4]) or "no address")
        for hosts, answer in group_equal(answers)
    ]
    if len(groups) < 2:
        return ""
    return f"the hosts resolve {address} (host {name}) to different addresses: " + "; ".join(
        f"{listed} on {hosts}" for hosts, listed in groups[:4]
    )


def _refuse_misleading_resolution(name: str, address: str, facts: FactsByHost) -> None:
    """Raise Refused if other hosts cannot reach the host `name` at this address.

    One cause is a host that resolves `address` to a loopback address.
    """
    for asked, seen in facts.items():
        if address in seen.hosts_file_loopback:
            raise Refused(
                f"{asked} resolves {address}, the address of {name}, to a loopback address: the "
                "tasks would wait for each other for ever. Debian writes such a line (127.0.1.1) "
                "to /etc/hosts",
                where=f"host {asked}: /etc/hosts",
                next=f"write `advertise: ADDRESS` (an IP) for {name} in the inventory, or remove "
                f"the line on {asked}",
            )
    parsed = _parse_ip(address)
    if parsed and (parsed.is_unspecified or parsed.is_multicast):
        raise Refused(
            f"{address} of {name} is no address that other hosts can reach",
            where=f"host {name}",
            next=f"write `advertise: ADDRESS` for {name} in the inventory",
        )
