"""The plan of a run that this machine does not know, read from the hosts that hold it. No host is believed alone.

What a host shows is checked (model/hostplan.py), hosts are reached as the inventory says, and two different plans are no plan.
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
from tfdeploy.model.folding import fold_names
from tfdeploy.model.hostplan import connection_settings, printable, read_shown, with_connections
from tfdeploy.model.inventory import Host
from tfdeploy.model.plan import HostPlan, Plan
from tfdeploy.operations.outcomes import split, together
from tfdeploy.transport.protocols import Fleet, Session

MOST_BYTES = 96 << 20  # of a plan's text: older ones of 1,000 hosts have 65 MiB
SILENCE_S = 20.0
FIRST = 3  # holders that are asked one after the other
_one_at_a_time = threading.Lock()  # so that many large ones never lie in memory together


@dataclass(frozen=True)
class Sought:
    """A run, and what this machine has to say about it: who holds it, how hosts are reached, its own metrics."""

    run: str
    job: str
    holders: tuple[Host, ...]
    hosts: tuple[Host, ...]
    metrics: Mapping[str, str] = field(default_factory=dict)


class DifferentPlans(HostFailed):
    """Of one run: nothing is shown or fetched as one."""


@dataclass(frozen=True)
class HeldPlan:
    """What a host holds: the plan, and the sha256 of its text."""

    sha256: str
    plan: Plan


def fetch_plan(fleet: Fleet, sought: Sought) -> tuple[Plan, dict[str, TfdeployError]]:
    """(the one plan that the holders hold, what is wrong with that of others). Raises DifferentPlans where two hold different
    ones, and what the holders say where none can be read."""
    held, errors = _read_plans(fleet, sought)
    if not held:
        raise together(f"reading the plan of {sought.run}", errors, len(sought.holders))
    groups = _groups(held)
    if len(groups) > 1:
        raise _differ(sought.run, groups)
    return with_connections(next(iter(held.values())).plan, sought.hosts), errors


def plan_to_stop(fleet: Fleet, sought: Sought, silent: tuple[Host, ...] = ()) -> Plan:
    """By which the run is stopped on every host that holds it or that a holder's plan names, whatever else the plans say.
    On the `silent` ones too, which may hold it, unless two holders show one plan: one host alone is not believed."""
    held, _ = _read_plans(fleet, sought)
    groups = _groups(held)
    named = {each.host: each for one in held.values() for each in one.plan.hosts}
    plan = next(iter(held.values())).plan if len(groups) == 1 else _bare(sought)
    plan = with_connections(replace(plan, hosts=tuple(named.values())), sought.hosts)
    believed = len(groups) == 1 and len(groups[0]) > 1
    return also_on(plan, sought.holders if believed else (*sought.holders, *silent))


def also_on(plan: Plan, hosts: Iterable[Host]) -> Plan:
    """The plan, and those of these hosts of the inventory that it does not name."""
    named = {each.host for each in plan.hosts}
    more = (HostPlan(host.name, "", 0, "", "", connection_settings(host)) for host in hosts if host.name not in named)
    return replace(plan, hosts=(*plan.hosts, *more))


def _read_plans(fleet: Fleet, sought: Sought) -> tuple[dict[str, HeldPlan], dict[str, TfdeployError]]:
    """One host sends all of it, and the others only where theirs is another: told by a sum that is made here. Where the first
    few show no plan, all send theirs."""
    found: dict[str, HeldPlan | TfdeployError] = {}
    known = None
    for holder in sought.holders[:FIRST]:
        found.update(fleet.each((holder,), lambda session: _ask(session, sought, None)))
        if (known := next(iter(split(found)[0].values()), None)) is not None:
            break
    rest = sought.holders[len(found) :]
    return split({**found, **fleet.each(rest, lambda session: _ask(session, sought, known))})


def _ask(session: Session, sought: Sought, known: HeldPlan | None) -> HeldPlan:
    """Raises HostFailed for what is no plan of that run."""
    args = {"run": sought.run, "job": sought.job, **({"unless": known.sha256} if known else {})}
    host = session.host.name
    with closing(session.agent().stream(RUN_PLAN, args, silence_s=SILENCE_S)) as stream:
        packed = next((blob for _, blob in stream), None)
    if packed is None and known is not None:
        return known
    try:
        with _one_at_a_time:
            content = frames.unpack(packed or b"", MOST_BYTES)
            plan = read_shown(content, sought.run, sought.job, sought.metrics)
    except (frames.WireError, ValueError) as error:
        what = f"the plan of {sought.run} that it holds is refused: {printable(str(error))[:300]}"
        raise HostFailed(what, where=host, next=f"--exclude {host} leaves it out") from error
    return HeldPlan(hashlib.sha256(content).hexdigest(), plan)


def _groups(held: Mapping[str, HeldPlan]) -> list[list[str]]:
    """Names of hosts, those together that hold the same plan."""
    found: dict[str, list[str]] = {}
    for host, one in held.items():
        found.setdefault(one.sha256, []).append(host)
    return list(found.values())


def _differ(run: str, groups: list[list[str]]) -> DifferentPlans:
    held = "; ".join(f"plan {number} is on {fold_names(names)}" for number, names in enumerate(groups[:9], 1))
    return DifferentPlans(
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
