"""Checks one host's network: addresses, ports, protection of ports, proxies, cluster variables."""

from __future__ import annotations

from collections.abc import Iterator

from tfdeploy.errors import Refused
from tfdeploy.model.job import LEVELS, Level
from tfdeploy.planning import protection
from tfdeploy.planning.cluster import addresses
from tfdeploy.planning.preflight.case import HostCase, Problem
from tfdeploy.text.units import format_count

LEAST_PORTS = 2  # a port for one task, and a port on which the host's agent talks to other hosts


def address(case: HostCase) -> Iterator[Problem]:
    """Yield a problem if the address by which other hosts reach this host is not known.

    The module `together` checks whether the addresses of all hosts fit together.
    """
    try:
        addresses.advertised_address(case.host, case.facts)
    except Refused as error:
        yield Problem(error.what, error.next or "", "error")


def ports(case: HostCase) -> Iterator[Problem]:
    low, high = case.host.ports
    free, needed = len(case.facts.free_ports), case.needs.task_count_or_one(case.host.name) + 1
    if free < max(LEAST_PORTS, needed):
        owners = ", ".join(
            f"{port} by {owner}" for port, owner in sorted(case.facts.taken_ports.items())[:4]
        )
        taken = f"; taken: {owners}" if owners else ""
        yield Problem(
            f"{format_count(free, 'port')} of {low}-{high} {'is' if free == 1 else 'are'} "
            f"free{taken}",
            f"end the processes that use these ports, or widen `ports:` of {case.host.name}",
            "error",
        )
    if case.preflight.ephemeral_ports:
        setting = f"net.ipv4.ip_local_reserved_ports={low}-{high}"
        yield Problem(
            f"{format_count(case.preflight.ephemeral_ports, 'port')} of {low}-{high} may be "
            "given to any outgoing connection",
            case.command("sysctl", "-w", setting, root=True),
        )


def protection_level(case: HostCase) -> Iterator[Problem]:
    """Yield a problem if the host cannot provide the level of `protect` that the job asks for.

    The job may also ask for `auto`. Then it is an error if tasks would listen on unprotected ports
    of the host, and a warning if most hosts can provide a stronger level than this host.
    """
    asked, hindered, usual = case.needs.protect, case.hindered, case.usual_protect

    def cure(level: Level) -> str:
        return protection.protection_remedy(case.host.name, case.facts, level)

    if asked == "auto":
        can = next(level for level in LEVELS if level not in hindered)
        if can == "none" and "peers" in hindered:
            plan, fix = case.needs.plan, cure("peers")
            is_open = plan is not None and case.host.name in protection.unprotected_hosts(plan)
            yield Problem(
                f"`protect: peers` is impossible ({hindered['peers']}): whoever reaches the ports "
                "of a run can connect to them",
                f"{fix}; or accept the risk: `tfdeploy launch --allow-open`" if is_open else fix,
                "error" if is_open else "warning",
            )
        elif LEVELS.index(can) > LEVELS.index(usual):
            detail = (
                f"this host supports only `protect: {can}` ({hindered[usual]}), but most hosts "
                f"support `protect: {usual}`"
            )
            yield Problem(detail, cure(usual))
    elif asked in hindered:
        yield Problem(
            f"this host does not support `protect: {asked}`: {hindered[asked]}",
            f"{cure(asked)}, or write `protect: auto` in the job",
            "error",
        )


def proxy_and_overridden_variables(case: HostCase) -> Iterator[Problem]:
    """Yield warnings about variables that the host's login environment sets.

    They are variables for proxies, and variables that the plan sets too.
    """
    facts = case.facts
    if facts.proxies:
        yield Problem(
            f"{', '.join(facts.proxies)} set: tasks bypass the proxy for the cluster's addresses "
            "and use it for all others",
            "if no proxy is wanted, remove the variables from /etc/environment or "
            "~/.ssh/environment on the host",
        )
    if facts.preset:
        yield Problem(
            f"{', '.join(facts.preset)} set in the login environment: tasks get the values of the "
            "plan instead",
            "remove the variables from /etc/environment, ~/.bashrc or ~/.ssh/environment on the "
            "host",
        )
