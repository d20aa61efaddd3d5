"""Checks what only a comparison of several hosts shows.

The module compares their clocks and addresses, finds machines that have two names in the inventory,
and finds the level of `protect` that most hosts can provide.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from tfdeploy.errors import Refused
from tfdeploy.model.facts import FactsByHost, HostFacts
from tfdeploy.model.inventory import Host, HostsByName
from tfdeploy.model.job import LEVELS
from tfdeploy.model.job import Level as Protect
from tfdeploy.model.output.check import Level
from tfdeploy.planning import host_checks, protection
from tfdeploy.planning.cluster import addresses
from tfdeploy.planning.cluster.addresses import AdvertisedAddress
from tfdeploy.planning.preflight.case import HostCase, Problem

_NAMED = re.compile(r"hosts? ([A-Za-z0-9_][A-Za-z0-9_.-]*)")


def clock(case: HostCase) -> Iterator[Problem]:
    if skew := host_checks.skew_text(case.ahead_s):
        yield Problem(
            f"its clock is {skew}: the times of its logs and checkpoints are wrong",
            case.command("timedatectl", "set-ntp", "true", root=True),
        )


def seconds_ahead(skew_s_by_host: Mapping[str, float]) -> dict[str, float]:
    """Return {host: seconds by which its clock is ahead of the clocks of most hosts}.

    `skew_s_by_host`: {host: seconds by which its clock is ahead of this machine's clock}. With more
    than two hosts, their median is subtracted, because this machine's clock may be wrong.
    """
    usual = statistics.median_low(skew_s_by_host.values()) if len(skew_s_by_host) > 2 else 0.0
    return {host: skew_s - usual for host, skew_s in skew_s_by_host.items()}


def find_hindrances_and_usual_level(
    host_and_facts_by_name: Mapping[str, tuple[Host, HostFacts]],
) -> tuple[dict[str, dict[Protect, str]], Protect]:
    """Return which levels of `protect` each host cannot provide, and the usual level.

    The first value is {host: {level: reason}}. The usual level is the strongest one that at least
    half of the hosts can provide.
    """
    facts = {name: host_facts for name, (_, host_facts) in host_and_facts_by_name.items()}
    kept = protection.find_hindrances(
        facts,
        [
            address
            for host, host_facts in host_and_facts_by_name.values()
            for address in _source_addresses(host, host_facts, facts)
        ],
    )
    usual = next(level for level in LEVELS if 2 * len(kept[level]) <= len(facts))
    return {
        name: {level: whys[name] for level, whys in kept.items() if name in whys} for name in facts
    }, usual


def _source_addresses(host: Host, host_facts: HostFacts, facts: FactsByHost) -> tuple[str, ...]:
    try:
        return addresses.source_addresses(
            host,
            host_facts,
            addresses.resolved_addresses(
                addresses.advertised_address(host, host_facts).address, facts
            ),
        )
    except Refused:
        return ()  # The rule `address` of preflight/network reports this error.


def compare_addresses(hosts: HostsByName, facts: FactsByHost) -> dict[str, list[Problem]]:
    """Return {host: its problems that only a comparison with other hosts shows}.

    A problem is that addresses do not fit together, or that two names lead to one machine.
    """
    problems: dict[str, list[Problem]] = {}
    called: dict[str, AdvertisedAddress] = {}
    for name, seen in facts.items():
        try:
            called[name] = addresses.advertised_address(hosts[name], seen)
        except Refused:
            continue  # The rule `address` of preflight/network reports this error.
    for name in called:
        for other, seen in facts.items():
            if called[name].address in seen.hosts_file_loopback:
                problem = Problem(
                    f"its /etc/hosts maps {called[name].address} ({name}) to loopback: tasks "
                    "would wait for each other for ever",
                    f"remove {called[name].address} from the 127.0.x.1 lines of its /etc/hosts, or "
                    f"write `advertise: IP` for {name}",
                    "error",
                )
                problems.setdefault(other, []).append(problem)
    for level, error in _address_refusals(called, facts) if len(facts) > 1 else ():
        name = host_in_error(error, facts) or next(iter(facts))
        problems.setdefault(name, []).append(Problem(error.what, error.next or "", level))
    return problems


def _address_refusals(
    advertised_by_host: Mapping[str, AdvertisedAddress], facts: FactsByHost
) -> Iterator[tuple[Level, Refused]]:
    """Yield (level of the problem, error) for each error that a plan with these addresses raises.

    The level is "warning" for a public address, because the operator can allow it. For all other
    errors, the level is "error".
    """
    quiet = {name: replace(seen, hosts_file_loopback=()) for name, seen in facts.items()}
    reported = set()
    looks: tuple[tuple[Level, Callable[[], object]], ...] = (
        (
            "error",
            lambda: addresses.refuse_or_note_addresses(
                advertised_by_host, quiet, allow_public=True
            ),
        ),
        (
            "warning",
            lambda: addresses.refuse_or_note_addresses(
                advertised_by_host, quiet, allow_public=False
            ),
        ),
        ("error", lambda: host_checks.refuse_same_machine(facts)),
    )
    for level, run_check in looks:
        try:
            run_check()
        except Refused as error:
            if error.what not in reported:
                reported.add(error.what)
                yield level, error


def host_in_error(error: Refused, known_hosts: Mapping[str, object]) -> str | None:
    """Return the host that an error is about; None if it names no host or an unknown host."""
    match = _NAMED.match(error.where or "")
    return match[1] if match and match[1] in known_hosts else None
