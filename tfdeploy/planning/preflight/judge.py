"""Applies the preflight's rules to the facts of all hosts, and returns the results as checks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tfdeploy.errors import HostUnreachable, Refused, TfdeployError
from tfdeploy.model.facts import HostFacts
from tfdeploy.model.inventory import Host
from tfdeploy.model.output.check import Check
from tfdeploy.planning.host_checks import most_frequent_version
from tfdeploy.planning.preflight import gpus, login, machine, network, packages, software, together
from tfdeploy.planning.preflight.case import HostCase, Needs, Problem, Rule

RULES: dict[str, Rule] = {
    "shell": login.shell_output,
    "python": software.python,
    "tensorflow": software.tensorflow,
    "packages": packages.packages,
    "gpus": gpus.gpus,
    "driver": gpus.driver,
    "rsync": software.rsync,
    "disk": machine.disk,
    "reserve": machine.reserve,
    "inodes": machine.inodes,
    "quota": machine.quota,
    "memory": machine.memory,
    "limits": machine.resource_limits,
    "shared memory": machine.shared_memory,
    "temporary files": machine.temporary_folder,
    "workdir": machine.workdir,
    "filesystem": machine.filesystem,
    "address": network.address,
    "ports": network.ports,
    "protect": network.protection_level,
    "environment": network.proxy_and_overridden_variables,
    "clock": together.clock,
    "logout": login.logout_cleanup,
    "runs": login.live_runs,
    "problems": login.unreported_problems,
}
# These rules find problems that the planner does not find, so a launch applies them too.
BEYOND_PLAN = (
    "packages",
    "reserve",
    "inodes",
    "quota",
    "memory",
    "limits",
    "shared memory",
    "temporary files",
    "filesystem",
    "logout",
)


@dataclass(frozen=True)
class ProbedHost:
    """One host with the facts that the probe for the preflight found.

    `skew_s`: seconds by which the host's clock is ahead of this machine's clock. `noise`: what the
    login shell printed.
    """

    host: Host
    facts: HostFacts
    skew_s: float = 0.0
    noise: str = ""


@dataclass(frozen=True)
class ProbeResults:
    """All hosts that were probed, and what is to be launched.

    `refused`: the error that prevents a plan; None if a plan can be made.
    """

    seen: Mapping[str, ProbedHost]
    needs: Needs = field(default_factory=Needs)
    refused: Refused | None = None


def check_hosts(
    probed: ProbeResults, rule_names: Iterable[str] = RULES
) -> dict[str, tuple[Check, ...]]:
    """Return {host: its passed and failed checks}. `rule_names`: names of the rules to apply."""
    names = [*rule_names]
    checks_by_host = {
        host: [check for name in names for check in _checks_of_rule(name, RULES[name](case))]
        for host, case in _make_host_cases(probed).items()
    }
    if "address" in names:
        _add_comparisons(probed, checks_by_host)
    return {host: tuple(checks) for host, checks in checks_by_host.items()}


def failed_error_checks(checks: Mapping[str, tuple[Check, ...]]) -> dict[str, tuple[Check, ...]]:
    """Return {host: its failed checks that are errors}. Hosts without errors are left out."""
    return {
        host: errors
        for host, host_checks in checks.items()
        if (errors := tuple(each for each in host_checks if each.is_error))
    }


def unreachable_host_checks(error: TfdeployError) -> tuple[Check, ...]:
    """Return the checks of a host that could not be probed.

    Either the ssh connection failed, or tfdeploy's agent on the host failed.
    """
    name = "ssh" if isinstance(error, HostUnreachable) else "agent"
    passed = () if name == "ssh" else (Check("ssh"),)
    return (*passed, Check(name, ok=False, detail=error.what, fix=error.next))


def _make_host_cases(probed: ProbeResults) -> dict[str, HostCase]:
    every = [each.facts for each in probed.seen.values()]
    usual = {
        name: most_frequent_version([getattr(facts, name) for facts in every])
        for name in software.COMPARED
    }
    with_usual = [facts.python for facts in every if facts.tensorflow == usual["tensorflow"]]
    usual["python"] = most_frequent_version(with_usual)
    having = {
        each.module: most_frequent_version(
            [facts.python for facts in every if facts.modules.get(each.module)]
        )
        for each in probed.needs.imports
    }
    ahead_s = together.seconds_ahead({host: each.skew_s for host, each in probed.seen.items()})
    used = {
        host: (each.host, each.facts)
        for host, each in probed.seen.items()
        if probed.needs.uses(host)
    }
    hindered, usual_protect = together.find_hindrances_and_usual_level(used)
    return {
        host: HostCase(
            each.host,
            each.facts,
            preflight,
            probed.needs,
            len(probed.seen),
            usual,
            ahead_s[host],
            each.noise,
            hindered.get(host, {}),
            usual_protect,
            having,
        )
        for host, each in probed.seen.items()
        if (preflight := each.facts.preflight) is not None
    }


def _checks_of_rule(name: str, problems: Iterable[Problem]) -> list[Check]:
    """Return a failed check for each problem. If there is no problem, return one passed check."""
    checks = [Check(name, False, level, detail, fix or None) for detail, fix, level in problems]
    return checks or [Check(name)]


def _add_comparisons(probed: ProbeResults, checks_by_host: dict[str, list[Check]]) -> None:
    """Add the problems that only a comparison of several hosts shows.

    A problem with a host's address becomes a failed check "address" and replaces the host's passed
    check "address".

    If no plan can be made, the error becomes a failed check "plan" of the host that the error
    names, unless this host has an error already. If the error names no host, the check "plan" is
    added to the first host.
    """
    hosts = {host: each.host for host, each in probed.seen.items()}
    facts = {host: each.facts for host, each in probed.seen.items()}
    for host, problems in together.compare_addresses(hosts, facts).items():
        checks_by_host[host] = [
            each for each in checks_by_host[host] if each != Check("address")
        ] + _checks_of_rule("address", problems)
    if probed.refused is None or not checks_by_host:
        return
    named = together.host_in_error(probed.refused, checks_by_host)
    if named is None or not any(each.is_error for each in checks_by_host[named]):
        checks_by_host[named or next(iter(checks_by_host))].append(
            Check("plan", False, "error", probed.refused.what, probed.refused.next)
        )
