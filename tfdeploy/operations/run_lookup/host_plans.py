"""Read the plan of a run from the hosts that hold it, if this machine's store lacks it.

Hosts are not trusted. Each plan is checked (model/hostplan.py), the connections come from the
inventory and not from a plan, and different plans are an error.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace

from tfdeploy.agent import frames
from tfdeploy.errors import HostFailed, TfdeployError
from tfdeploy.model.answers.runs import RUN_PLAN
from tfdeploy.model.hostplan import connection_settings, printable, read_shown, with_connections
from tfdeploy.model.inventory import Host
from tfdeploy.model.plan import HostPlan, Plan
from tfdeploy.model.text.folding import fold_names
from tfdeploy.operations.outcomes import combine_errors, split_outcomes
from tfdeploy.transport.protocols import Fleet, Session

MOST_BYTES = 96 << 20  # limit for a plan's text; older plans of 1,000 hosts have 65 MiB
SILENCE_S = 20.0
FIRST = 3  # hosts with the run that are asked one by one, before all others are asked at once
# Plans are unpacked one at a time, because they may be large.
_one_at_a_time = threading.Lock()


@dataclass(frozen=True)
class PlanRequest:
    """A request for the plan of a run.

    `holders` are the hosts that hold the plan, and `hosts` are all hosts of the inventory.
    `metrics` are the metrics of this machine's job file.
    """

    run: str
    job: str
    holders: tuple[Host, ...]
    hosts: tuple[Host, ...]
    metrics: Mapping[str, str] = field(default_factory=dict)


class DifferentPlans(HostFailed):
    """Hosts hold different plans of one run, so none of them can be used."""


@dataclass(frozen=True)
class HeldPlan:
    """The plan that a host holds, and the sha256 of its text."""

    sha256: str
    plan: Plan


def fetch_plan(fleet: Fleet, request: PlanRequest) -> tuple[Plan, dict[str, TfdeployError]]:
    """Return the plan that the hosts of the run hold, and {host: why its plan could not be read}.

    Raises DifferentPlans if two hosts hold different plans, and the hosts' errors if no plan can be
    read.
    """
    held, errors = _read_plans(fleet, request)
    if not held:
        raise combine_errors(f"reading the plan of {request.run}", errors, len(request.holders))
    if len(groups := _groups(held)) > 1:
        raise _different_plans(request.run, [hosts for _, hosts in groups])
    return with_connections(groups[0][0], request.hosts), errors


def plan_to_stop(fleet: Fleet, request: PlanRequest, silent: tuple[Host, ...] = ()) -> Plan:
    """Return a plan for stopping a run. It names every host that may hold the run.

    These are the hosts that report the run, and the hosts that their plans name. The `silent` hosts
    (without an answer) are added too, unless at least two hosts hold a readable plan and all these
    plans are equal.
    """
    groups = _groups(_read_plans(fleet, request)[0])
    named = {each.host: each for plan, _ in groups for each in plan.hosts}
    plan, holders = groups[0] if len(groups) == 1 else (_empty_plan(request), [])
    plan = with_connections(replace(plan, hosts=tuple(named.values())), request.hosts)
    return with_hosts(plan, request.holders if len(holders) > 1 else (*request.holders, *silent))


def with_hosts(plan: Plan, hosts: Iterable[Host]) -> Plan:
    """Return the plan, with those of `hosts` added that the plan does not name yet."""
    named = {*plan.host_names}
    more = (
        HostPlan(host.name, "", 0, "", "", ssh=connection_settings(host))
        for host in hosts
        if host.name not in named
    )
    return replace(plan, hosts=(*plan.hosts, *more))


def _read_plans(
    fleet: Fleet, request: PlanRequest
) -> tuple[dict[str, HeldPlan], dict[str, TfdeployError]]:
    """Read the plans of the hosts that hold the run, and return them with the errors of hosts.

    One host sends its plan, and this machine computes the plan's sha256. Each other host sends its
    plan only if the sha256 of that plan differs. If none of the first FIRST hosts has a readable
    plan, all others send theirs.
    """
    outcomes: dict[str, HeldPlan | TfdeployError] = {}
    known = None
    for holder in request.holders[:FIRST]:
        outcomes.update(fleet.each((holder,), lambda session: _ask(session, request, None)))
        if (known := next(iter(split_outcomes(outcomes)[0].values()), None)) is not None:
            break
    rest = request.holders[len(outcomes) :]
    return split_outcomes(
        {**outcomes, **fleet.each(rest, lambda session: _ask(session, request, known))}
    )


def _ask(session: Session, request: PlanRequest, known: HeldPlan | None) -> HeldPlan:
    """Return the host's plan, or `known` if both are equal.

    Raises HostFailed for an answer that is no plan of that run.
    """
    args = {"run": request.run, "job": request.job, **({"unless": known.sha256} if known else {})}
    host = session.host.name
    with closing(session.agent().stream(RUN_PLAN, args, silence_s=SILENCE_S)) as stream:
        packed = next((blob for _, blob in stream), None)
    if packed is None and known is not None:
        return known
    try:
        with _one_at_a_time:
            content = frames.decompress(packed or b"", MOST_BYTES)
            plan = read_shown(content, request.run, request.job, request.metrics)
    except (frames.WireError, ValueError) as error:
        what = f"the plan of {request.run} that it holds is refused: {printable(str(error))[:300]}"
        raise HostFailed(what, where=host, next=f"--exclude {host} leaves it out") from error
    return HeldPlan(hashlib.sha256(content).hexdigest(), plan)


def _groups(held: Mapping[str, HeldPlan]) -> list[tuple[Plan, list[str]]]:
    """Return each different plan with the hosts that hold it."""
    groups: dict[str, tuple[Plan, list[str]]] = {}
    for host, one in held.items():
        groups.setdefault(one.sha256, (one.plan, []))[1].append(host)
    return list(groups.values())


def _different_plans(run: str, groups: list[list[str]]) -> DifferentPlans:
    held = "; ".join(
        f"plan {number} is on {fold_names(names)}" for number, names in enumerate(groups[:9], 1)
    )
    return DifferentPlans(
        f"hosts hold {len(groups)} different plans of {run}: {held}",
        where=", ".join(names[0] for names in groups[:9]),
        next=f"--limit HOST shows what one of them holds; `tfdeploy stop {run}` ends it on "
        "all of them",
    )


def _empty_plan(request: PlanRequest) -> Plan:
    """Return a plan without hosts and tasks, for a run whose plan is unreadable or ambiguous."""
    return Plan(
        run=request.run,
        job=request.job,
        mode="local",
        created=0.0,
        operator="",
        release="",
        command=(),
        cluster={},
        hosts=(),
        tasks=(),
        deciding=(),
        flags_appended=(),
    )
