"""Checks the network of one host: addresses, ports, protection of the ports, proxies, variables."""

from __future__ import annotations

from collections.abc import Iterator

from tfdeploy.errors import Refused
from tfdeploy.model.protect import LEVELS
from tfdeploy.model.text.units import count
from tfdeploy.planning import protection
from tfdeploy.planning.cluster import addresses
from tfdeploy.planning.preflight.case import Case, Problem

LEAST_PORTS = 2  # one for a task and one for the agent (the mesh)


def address(case: Case) -> Iterator[Problem]:
    """Yield a problem if it is not known by which address other hosts reach this one.

    Whether the addresses of all hosts fit together is checked in preflight/together.
    """
    try:
        addresses.advertised(case.host, case.facts)
    except Refused as error:
        yield Problem("error", error.what, error.next or "")


def ports(case: Case) -> Iterator[Problem]:
    low, high = case.host.ports
    free, needed = len(case.facts.free_ports), case.needs.tasks_on(case.host.name) + 1
    if free < max(LEAST_PORTS, needed):
        owners = ", ".join(
            f"{port} by {owner}" for port, owner in sorted(case.facts.taken_ports.items())[:4]
        )
        detail = f"{count(free, 'port')} of {low}-{high} {'is' if free == 1 else 'are'} free"
        detail += f"; taken: {owners}" if owners else ""
        yield Problem(
            "error", detail, f"end what has them there, or widen `ports:` of {case.host.name}"
        )
    if case.preflight.ephemeral_ports:
        detail = (
            f"{count(case.preflight.ephemeral_ports, 'port')} of {low}-{high} may be given to "
            "any outgoing connection"
        )
        yield Problem(
            "warning",
            detail,
            case.command(
                "sysctl", "-w", f"net.ipv4.ip_local_reserved_ports={low}-{high}", root=True
            ),
        )


def protect(case: Case) -> Iterator[Problem]:
    """Yield a problem if the host cannot provide the level of `protect` that the job asks for.

    With `auto`, it is an error if tasks would listen on unprotected ports of the host, and a
    warning if most hosts can provide a stronger level than this one.
    """
    asked, hindered = case.needs.protect, case.hindered
    if asked == "auto":
        can = next(level for level in LEVELS if level not in hindered)
        if can == "none" and "peers" in hindered:
            plan, cure = case.needs.plan, protection.cure(case.host.name, case.facts, "peers")
            detail = (
                f"protect: {hindered['peers']}: the ports of a run are open to whoever reaches them"
            )
            if plan and case.host.name in protection.open_hosts(plan):
                yield Problem(
                    "error", detail, f"{cure}; or accept it: `tfdeploy launch --allow-open`"
                )
            else:
                yield Problem("warning", detail, cure)
        elif LEVELS.index(can) > LEVELS.index(case.usual_protect):
            detail = (
                f"it falls to `protect: {can}`, and most can do more: "
                f"{hindered[case.usual_protect]}"
            )
            yield Problem(
                "warning", detail, protection.cure(case.host.name, case.facts, case.usual_protect)
            )
    elif asked in hindered:
        cure = (
            f"{protection.cure(case.host.name, case.facts, asked)}, or write `protect: auto` in "
            "the job"
        )
        yield Problem("error", f"it cannot do `protect: {asked}`: {hindered[asked]}", cure)


def variables(case: Case) -> Iterator[Problem]:
    """Yield warnings about proxies, and about variables that both the host and the plan set.

    They are set in the login environment of the host.
    """
    facts = case.facts
    if facts.proxies:
        detail = (
            f"{', '.join(facts.proxies)} set: tasks bypass the proxy for the cluster's "
            "addresses and use it for all others"
        )
        yield Problem(
            "warning",
            detail,
            "remove it from /etc/environment or ~/.ssh/environment there if no proxy is wanted",
        )
    if facts.preset:
        detail = f"{', '.join(facts.preset)} set in the login environment: tasks get the plan's"
        yield Problem(
            "warning",
            detail,
            "remove it from /etc/environment, ~/.bashrc or ~/.ssh/environment there",
        )
