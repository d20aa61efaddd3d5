"""The plan of a run that this machine does not know, read from the hosts that hold it. No host is believed alone.

What a host shows is checked (model/hostplan.py), hosts are reached as the inventory says, and two different plans are no plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from tfdeploy.errors import HostFailed, TfdeployError
from tfdeploy.model.answers.runs import RUN_PLAN
from tfdeploy.model.folding import fold_names
from tfdeploy.model.hostplan import believed, printable, with_ways
from tfdeploy.model.inventory import Host
from tfdeploy.model.plan import HostPlan, Plan, plan_from_json
from tfdeploy.operations.outcomes import split, together
from tfdeploy.transport.seam import Fleet, Session


@dataclass(frozen=True)
class Sought:
    """A run, and what this machine has to say about it: who holds it, how hosts are reached, its own metrics."""

    run: str
    job: str
    holders: tuple[Host, ...]
    hosts: tuple[Host, ...]
    metrics: Mapping[str, str] = field(default_factory=dict)


def fetch_plan(fleet: Fleet, sought: Sought) -> tuple[Plan, dict[str, TfdeployError]]:
    """(the one plan that the holders hold, what is wrong with that of others). Raises HostFailed where two hold different
    ones, and what the holders say where none can be read."""
    plans, errors = _read_plans(fleet, sought)
    if not plans:
        raise together(f"reading the plan of {sought.run}", errors, len(sought.holders))
    groups = _groups(plans)
    if len(groups) > 1:
        raise _differ(sought.run, groups)
    return with_ways(next(iter(plans.values())), sought.hosts), errors


def plan_to_stop(fleet: Fleet, sought: Sought) -> Plan:
    """By which the run is stopped on every host that holds it or that a holder's plan names, whatever else the plans say."""
    plans, _ = _read_plans(fleet, sought)
    named = {each.host: each for plan in plans.values() for each in plan.hosts}
    for holder in sought.holders:
        named.setdefault(holder.name, HostPlan(holder.name, "", 0, "", ""))
    plan = next(iter(plans.values())) if len(_groups(plans)) == 1 else _bare(sought)
    return with_ways(replace(plan, hosts=tuple(named.values())), sought.hosts)


def read_plan_of(host: str, fields: Any, sought: Sought) -> Plan:
    """Raises HostFailed for what is no plan of that run."""
    try:
        return believed(plan_from_json(fields), sought.run, sought.job, sought.metrics)
    except (msgspec.ValidationError, ValueError, OverflowError, RecursionError) as error:
        what = f"the plan of {sought.run} that it holds is refused: {printable(str(error))[:300]}"
        raise HostFailed(what, where=host, next=f"--exclude {host} leaves it out") from error


def _read_plans(fleet: Fleet, sought: Sought) -> tuple[dict[str, Plan], dict[str, TfdeployError]]:
    def ask(session: Session) -> Plan:
        fields = session.agent().call(RUN_PLAN, {"run": sought.run, "job": sought.job})
        return read_plan_of(session.host.name, fields, sought)

    return split(fleet.each(sought.holders, ask))


def _groups(plans: Mapping[str, Plan]) -> list[list[str]]:
    """Names of hosts, those together that hold the same plan."""
    found: dict[str, list[str]] = {}
    for host, plan in plans.items():
        found.setdefault(plan.digest, []).append(host)
    return list(found.values())


def _differ(run: str, groups: list[list[str]]) -> HostFailed:
    held = "; ".join(f"plan {number} is on {fold_names(names)}" for number, names in enumerate(groups[:9], 1))
    return HostFailed(
        f"hosts hold {len(groups)} different plans of {run}: {held}",
        where=", ".join(names[0] for names in groups[:9]),
        next=f"--limit HOST shows what one of them holds; tfdeploy stop {run} ends it on all of them",
    )


def _bare(sought: Sought) -> Plan:
    """Of a run of which no plan can be read, or several."""
    return Plan(
        run=sought.run,
        job=sought.job,
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
