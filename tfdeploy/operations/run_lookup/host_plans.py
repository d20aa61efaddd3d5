"""Read the plan of a run from the hosts that hold it, if this machine's store lacks the plan.

Hosts are not trusted. So each plan is checked (model/plan_files.py), and it is an error if hosts
hold different plans. This machine connects only to addresses of the inventory, never to addresses
from a plan.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace

from tfdeploy.agent import frames
from tfdeploy.errors import HostFailed
from tfdeploy.model.answers.runs import RUN_PLAN
from tfdeploy.model.inventory import Host, Hosts, ssh_settings_of
from tfdeploy.model.plan import HostPlan, Plan
from tfdeploy.model.plan_files import read_untrusted_plan
from tfdeploy.operations.outcomes import combine_errors, split_outcomes
from tfdeploy.text.allowed import to_printable_line
from tfdeploy.text.names import fold_names
from tfdeploy.transport.protocols import Errors, Fleet, Outcomes, Session

# Maximum size of a plan's text, in bytes. Plans for 1,000 hosts that older versions of tfdeploy
# made have 65 MiB.
MOST_BYTES = 96 << 20
SILENCE_S = 20.0
# At first, at most this many hosts are asked one by one, until one of them has sent a plan. All
# other hosts are then asked at once.
FIRST = 3
# Only one plan is unpacked at a time, because plans may need much memory.
_one_at_a_time = threading.Lock()


@dataclass(frozen=True)
class PlanRequest:
    """A request for the plan of a run.

    `holders` are the hosts that hold files of the run. `inventory_hosts` are all hosts of the
    inventory. `metrics` are the metrics of this machine's job file.
    """

    run: str
    job: str
    holders: Hosts
    inventory_hosts: Hosts
    metrics: Mapping[str, str] = field(default_factory=dict)


class DifferentPlans(HostFailed):
    """Hosts hold different plans of one run, so none of them can be used."""


@dataclass(frozen=True)
class HeldPlan:
    """The plan that a host holds, and the sha256 of its text."""

    sha256: str
    plan: Plan


def fetch_plan(fleet: Fleet, request: PlanRequest) -> tuple[Plan, Errors]:
    """Return the plan that the hosts of the run hold, and {host: why its plan could not be read}.

    Raises DifferentPlans if two hosts hold different plans. If no plan can be read, raises the
    hosts' errors.
    """
    held_plans, errors = _read_plans(fleet, request)
    if not held_plans:
        raise combine_errors(f"reading the plan of {request.run}", errors, len(request.holders))
    if len(groups := _group_equal_plans(held_plans)) > 1:
        raise _different_plans_error(request.run, [hosts for _, hosts in groups])
    return _with_ssh_settings(groups[0][0], request.inventory_hosts), errors


def make_stop_plan(fleet: Fleet, request: PlanRequest, silent_hosts: Hosts) -> Plan:
    """Return a plan with which a run can be stopped. It names every host that may hold the run.

    These are the hosts that report the run, and the hosts that the plans of these hosts name. If at
    least two hosts hold a readable plan, and all readable plans are equal, the list is complete.
    Otherwise `silent_hosts` (the hosts that do not answer) are added too.
    """
    groups = _group_equal_plans(_read_plans(fleet, request)[0])
    named = {each.host: each for plan, _ in groups for each in plan.hosts}
    plan, holders = groups[0] if len(groups) == 1 else (_stand_in_plan(request), [])
    plan = _with_ssh_settings(replace(plan, hosts=tuple(named.values())), request.inventory_hosts)
    return add_missing_hosts(
        plan, request.holders if len(holders) > 1 else (*request.holders, *silent_hosts)
    )


def add_missing_hosts(plan: Plan, hosts: Iterable[Host]) -> Plan:
    """Return the plan, with those of `hosts` added that the plan does not name yet."""
    named = {*plan.host_names}
    added = (
        HostPlan(host.name, "", 0, "", "", ssh=ssh_settings_of(host))
        for host in hosts
        if host.name not in named
    )
    return replace(plan, hosts=(*plan.hosts, *added))


def _with_ssh_settings(plan: Plan, hosts: Iterable[Host]) -> Plan:
    """Return the plan with the SSH settings of `hosts`, the inventory's hosts. A host of the plan
    that is not in the inventory gets no address."""
    known = {host.name: host for host in hosts}
    settings = {
        each.host: ssh_settings_of(known.get(each.host) or Host(each.host, ""))
        for each in plan.hosts
    }
    return replace(plan, hosts=tuple(replace(each, ssh=settings[each.host]) for each in plan.hosts))


def _read_plans(fleet: Fleet, request: PlanRequest) -> tuple[dict[str, HeldPlan], Errors]:
    """Read the plans of the hosts that hold the run, and return them with the errors of hosts.

    One host sends its plan, and this machine computes the plan's sha256. Each other host gets this
    sha256, and sends its own plan only if the sha256 of that plan differs. If none of the first
    FIRST hosts has a readable plan, all other hosts send their plans.
    """
    outcomes: Outcomes[HeldPlan] = {}
    first_plan = None
    for holder in request.holders[:FIRST]:
        outcomes.update(fleet.each((holder,), lambda session: _read_plan(session, request, None)))
        if (first_plan := next(iter(split_outcomes(outcomes)[0].values()), None)) is not None:
            break
    other_holders = request.holders[len(outcomes) :]
    return split_outcomes(
        {
            **outcomes,
            **fleet.each(other_holders, lambda session: _read_plan(session, request, first_plan)),
        }
    )


def _read_plan(session: Session, request: PlanRequest, first_plan: HeldPlan | None) -> HeldPlan:
    """Return the host's plan, or `first_plan` if both are equal.

    Raises HostFailed if the answer is not a valid plan of the requested run.
    """
    args = {
        "run": request.run,
        "job": request.job,
        **({"unless": first_plan.sha256} if first_plan else {}),
    }
    host = session.host.name
    with closing(session.agent().stream(RUN_PLAN, args, silence_s=SILENCE_S)) as stream:
        packed = next((blob for _, blob in stream), None)
    if packed is None and first_plan is not None:
        return first_plan
    try:
        with _one_at_a_time:
            content = frames.decompress(packed or b"", MOST_BYTES)
            plan = read_untrusted_plan(content, request.run, request.job, request.metrics)
    except (frames.WireError, ValueError) as error:
        raise HostFailed(
            f"the host's plan of {request.run} is invalid: {to_printable_line(str(error))[:300]}",
            where=host,
            next=f"add --exclude {host} to leave this host out",
        ) from error
    return HeldPlan(hashlib.sha256(content).hexdigest(), plan)


def _group_equal_plans(held_plan_by_host: Mapping[str, HeldPlan]) -> list[tuple[Plan, list[str]]]:
    """Return the plans without duplicates, each with the hosts that hold this plan."""
    groups: dict[str, tuple[Plan, list[str]]] = {}
    for host, held_plan in held_plan_by_host.items():
        groups.setdefault(held_plan.sha256, (held_plan.plan, []))[1].append(host)
    return list(groups.values())


def _different_plans_error(run: str, groups: list[list[str]]) -> DifferentPlans:
    places = "; ".join(
        f"plan {number} is on {fold_names(names)}" for number, names in enumerate(groups[:9], 1)
    )
    return DifferentPlans(
        f"hosts hold {len(groups)} different plans of {run}: {places}",
        where=", ".join(names[0] for names in groups[:9]),
        next=f"add --limit HOST to see one host's plan, or end the run on all hosts: "
        f"`tfdeploy stop {run}`",
    )


def _stand_in_plan(request: PlanRequest) -> Plan:
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
