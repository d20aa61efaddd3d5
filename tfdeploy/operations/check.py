"""`tfdeploy check`: what would go wrong in a launch, on every host and between every pair of hosts. Changes nothing there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tfdeploy.errors import HostUnreachable, Refused, TfdeployError
from tfdeploy.model.check import Check, Checked
from tfdeploy.model.events import Emit
from tfdeploy.model.facts import HostFacts
from tfdeploy.model.inventory import Inventory
from tfdeploy.model.modes import rules
from tfdeploy.model.protect import AskedLevel
from tfdeploy.operations.emit import step
from tfdeploy.operations.launch import Launch, needs_of, planned
from tfdeploy.operations.outcomes import split
from tfdeploy.operations.preflight.hosts import look_at
from tfdeploy.operations.preflight.links import try_links
from tfdeploy.operations.probe import Asked
from tfdeploy.operations.setup import recipe_of
from tfdeploy.operations.shipment import Shipment, read_shipment
from tfdeploy.planning.checks import program_on_path
from tfdeploy.planning.preflight.case import Needs
from tfdeploy.planning.preflight.judge import Probed, Seen, judge, not_probed
from tfdeploy.planning.preflight.links import ends
from tfdeploy.planning.seats import hosts_to_probe
from tfdeploy.planning.source.imports import modules_asked
from tfdeploy.transport.protocols import Fleet


@dataclass(frozen=True)
class Preflight:
    """`launch`: what is to be launched, where there is a job file."""

    inventory: Inventory
    launch: Launch | None = None
    deep: bool = False


def check(asked: Preflight, fleet: Fleet, emit: Emit) -> Checked:
    """What was found. Raises ConfigError for a job file that cannot be used."""
    hosts = asked.inventory.hosts
    shipment, unread = _shipment(asked.launch)
    questions, unready = _questions(asked, shipment)
    with step(emit, "probe"):
        seen, lost = split(look_at(fleet, hosts, questions, emit))
    needs, refused = _needs(asked.launch, shipment, seen)
    refused = unread or refused
    checks = judge(Probed(seen, needs, unready or refused))
    facts, there = {host: each.facts for host, each in seen.items()}, tuple(host for host in hosts if host.name in seen)
    with step(emit, "links"):
        found = try_links(fleet, there, ends({host.name: host for host in there}, facts, needs.plan), deep=asked.deep)
    errors = {**lost, **found.errors}
    unreached = frozenset(host for host, error in errors.items() if isinstance(error, HostUnreachable))
    whole = {host.name: _whole(checks.get(host.name, ()), errors.get(host.name), found.taken.get(host.name)) for host in hosts}
    return Checked(whole, found.links, unreached)


def _whole(checks: tuple[Check, ...], error: TfdeployError | None, taken: Mapping[int, str] | None) -> tuple[Check, ...]:
    """A host's checks with those of its session and of its ports. `taken`: port -> why it could not listen there."""
    if taken:
        what = "; ".join(f"port {port} was taken while it was checked: {why}" for port, why in taken.items())
        checks = (*checks, Check("ports", False, "warning", what, "tfdeploy check"))
    return (*(not_probed(error) if error else (Check("ssh"), Check("agent"))), *checks)


def _shipment(launch: Launch | None) -> tuple[Shipment | None, Refused | None]:
    """What would be sent, and why it cannot be read."""
    if launch is None:
        return None, None
    try:
        return read_shipment(launch.job, launch.cache, launch.known), None
    except Refused as error:
        return None, error


def _questions(asked: Preflight, shipment: Shipment | None) -> tuple[Asked, Refused | None]:
    """What every host is asked, and why the environment that the job wants cannot be read here."""
    hosts, launch = asked.inventory.hosts, asked.launch
    if launch is None:
        return Asked.of(hosts, preflight=True), None
    firewall = _protect(launch) in ("auto", "firewall")
    digest, unready = None, None
    try:
        recipe = recipe_of(launch.job, launch.cache)
        digest = recipe.digest if recipe else None
    except Refused as error:
        unready = error
    job = launch.job
    asked_for = Asked.of(
        hosts,
        job=job.name,
        keep=job.keep,
        setup=digest,
        program=program_on_path(job),
        modules=modules_asked(shipment.program(job)) if shipment else (),
        preflight=True,
        firewall=firewall,
    )
    return asked_for, unready


def _needs(launch: Launch | None, shipment: Shipment | None, seen: Mapping[str, Seen]) -> tuple[Needs, Refused | None]:
    """What the job needs of each host, and why it could not be planned."""
    needs = Needs()
    if launch is None or shipment is None:
        return needs, None
    try:
        needs = replace(needs_of(launch, shipment), protect=_protect(launch), hosts=_used(launch))
        facts = _plannable(launch, seen)
        return (needs, None) if facts is None else (replace(needs, plan=planned(launch, shipment, facts)), None)
    except Refused as error:
        return needs, error


def _protect(launch: Launch) -> AskedLevel:
    """What hosts must be able to do. No task of a mode for one host listens."""
    return "none" if launch.job.mode and rules(launch.job.mode).single else launch.job.protect


def _used(launch: Launch) -> tuple[str, ...] | None:
    mode = launch.job.mode
    return hosts_to_probe(launch.inventory, mode) if mode else None


def _plannable(launch: Launch, seen: Mapping[str, Seen]) -> dict[str, HostFacts] | None:
    """The facts that a plan is made from; None where it cannot be made: no mode, no command, or a host that did not answer. A
    live run of the job is a check of its own, and hinders no plan here."""
    job = launch.job
    if job.mode is None or not job.command:
        return None
    wanted = hosts_to_probe(launch.inventory, job.mode)
    if not wanted or not all(name in seen for name in wanted):
        return None
    return {name: replace(each.facts, live_runs=()) for name, each in seen.items()}
