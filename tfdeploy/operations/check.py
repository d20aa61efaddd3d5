"""Find problems that would make a launch fail, for `tfdeploy check`.

Checks every host and every pair of hosts. Changes nothing on hosts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeVar

from tfdeploy.errors import HostUnreachable, Refused, TfdeployError
from tfdeploy.model.events import Emit
from tfdeploy.model.facts import HostFacts
from tfdeploy.model.inventory import Hosts
from tfdeploy.model.output.check import Check, PreflightResult
from tfdeploy.operations.emit import step_events
from tfdeploy.operations.launch import LaunchRequest, launch_needs, plan_launch, probe_questions
from tfdeploy.operations.outcomes import split_outcomes
from tfdeploy.operations.preflight.hosts import probe_hosts
from tfdeploy.operations.preflight.links import try_links
from tfdeploy.operations.probe import ProbeQuestions
from tfdeploy.operations.sending.shipment import Shipment, read_shipment
from tfdeploy.operations.setup import read_environment_recipe
from tfdeploy.planning.preflight.case import Needs
from tfdeploy.planning.preflight.judge import (
    ProbedHost,
    ProbeResults,
    check_hosts,
    unreachable_host_checks,
)
from tfdeploy.planning.preflight.links import listening_ports
from tfdeploy.planning.program import mode_signs
from tfdeploy.planning.seats import hosts_to_probe
from tfdeploy.transport.protocols import Fleet

V = TypeVar("V")


def check(
    hosts: Hosts, launch: LaunchRequest | None, fleet: Fleet, emit: Emit, *, deep: bool = False
) -> PreflightResult:
    """Return the results of all checks: of every host, and of the links between hosts.

    `launch` is the launch to check, if there is a job file. Raises ConfigError for a job file that
    cannot be used.
    """
    refused = list[Refused]()
    shipment, questions = _shipment_and_probe_questions(hosts, launch, refused)
    with step_events(emit, "probe"):
        probed, errors_of_probe = split_outcomes(probe_hosts(fleet, hosts, questions, emit))
    needs = _make_needs(launch, shipment, probed, refused)
    checks = check_hosts(ProbeResults(probed, needs, refused[0] if refused else None))
    facts = {host: each.facts for host, each in probed.items()}
    answering = {host.name: host for host in hosts if host.name in probed}
    with step_events(emit, "links"):
        reached = try_links(
            fleet,
            tuple(answering.values()),
            listening_ports(answering, facts, needs.plan),
            deep=deep,
        )
    errors = {**errors_of_probe, **reached.errors}
    unreached = frozenset(
        host for host, error in errors.items() if isinstance(error, HostUnreachable)
    )
    checks_by_host = {
        host.name: _combine_host_checks(
            checks.get(host.name, ()), errors.get(host.name), reached.taken_ports.get(host.name)
        )
        for host in hosts
    }
    return PreflightResult(checks_by_host, reached.links, unreached)


def _read_or_collect_refusal(read: Callable[[], V], refused: list[Refused]) -> V | None:
    """Return the result of `read`, or None if it raises Refused. Add the error to `refused`.

    So `check` can go on and report several problems.
    """
    try:
        return read()
    except Refused as error:
        refused.append(error)
        return None


def _shipment_and_probe_questions(
    hosts: Hosts, launch: LaunchRequest | None, refused: list[Refused]
) -> tuple[Shipment | None, ProbeQuestions]:
    """Return what a launch would send, and the questions of the probe to every host.

    What would be sent is None if there is no launch or its code or data cannot be read.
    """
    if launch is None:
        return None, ProbeQuestions.for_hosts(hosts, preflight=True)
    recipe = _read_or_collect_refusal(
        lambda: read_environment_recipe(launch.job, launch.cache), refused
    )
    shipment = _read_or_collect_refusal(
        lambda: read_shipment(launch.job, launch.cache, launch.known), refused
    )
    return shipment, probe_questions(launch.job, hosts, shipment, recipe)


def _make_needs(
    launch: LaunchRequest | None,
    shipment: Shipment | None,
    probed: Mapping[str, ProbedHost],
    refused: list[Refused],
) -> Needs:
    """Return what the job needs of each host. The result has the plan, if a plan can be made."""
    if launch is None or shipment is None:
        return Needs()
    job = launch.job
    _read_or_collect_refusal(
        lambda: mode_signs.refuse_or_note_mode(job, shipment.program(job), force=False), refused
    )
    needs = _read_or_collect_refusal(lambda: launch_needs(launch, shipment), refused) or Needs()
    facts = _facts_for_plan(launch, probed)
    plan = (
        None
        if facts is None
        else _read_or_collect_refusal(lambda: plan_launch(launch, shipment, facts), refused)
    )
    return replace(needs, plan=plan)


def _combine_host_checks(
    checks: tuple[Check, ...], error: TfdeployError | None, why_by_port: Mapping[int, str] | None
) -> tuple[Check, ...]:
    """Return all checks of a host: `checks`, and those of its connection and its ports.

    `error`: why the host could not be checked, or None. `why_by_port` maps a port to the reason why
    the host could not listen on it.
    """
    if why_by_port:
        problem = "; ".join(
            f"another program took port {port} during the check: {why}"
            for port, why in why_by_port.items()
        )
        checks = (*checks, Check("ports", False, "warning", problem, "`tfdeploy check`"))
    return (*(unreachable_host_checks(error) if error else (Check("ssh"), Check("agent"))), *checks)


def _facts_for_plan(
    launch: LaunchRequest, probed: Mapping[str, ProbedHost]
) -> dict[str, HostFacts] | None:
    """Return the facts for a plan; None if no plan can be made.

    A plan needs a mode, a command and the facts of every host that the mode may use. Live runs of
    the job are left out of the facts, because another check reports them.
    """
    job = launch.job
    if job.mode is None or not job.command:
        return None
    required_hosts = hosts_to_probe(launch.inventory, job.mode)
    if not required_hosts or not all(name in probed for name in required_hosts):
        return None
    return {name: replace(each.facts, live_runs=()) for name, each in probed.items()}
