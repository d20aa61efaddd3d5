"""Test what must be true for every plan, with random inventories, GPUs and numbers of tasks."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from tfdeploy.agent import wire
from tfdeploy.errors import TfdeployError
from tfdeploy.model.facts import HostFacts
from tfdeploy.model.inventory import Host, Inventory
from tfdeploy.model.job import MODES, Job, Mode, RoleRule
from tfdeploy.model.modes import rules_of
from tfdeploy.model.plan import Plan, TaskPlan, endpoint, plan_from_json, plan_to_json
from tfdeploy.model.plan_files import plan_from_file, plan_to_file
from tfdeploy.planning.cluster.ports import shared_port_key
from tfdeploy.planning.host_parts import host_parts, shared_part
from tfdeploy.planning.options import Options
from tfdeploy.planning.plan import make_plan

RANKS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")


@dataclass(frozen=True)
class PlanCase:
    inventory: Inventory
    gpus: dict[str, int]
    taken: dict[str, tuple[int, ...]]
    rules: dict[str, RoleRule]
    options: Options
    mode: Mode


@st.composite
def plan_cases(draw: st.DrawFn, mode: Mode | None = None) -> PlanCase:
    names = [f"n{number}" for number in range(draw(st.integers(1, 6)))]
    loopback = draw(st.booleans())
    # Some hosts get the same address.
    addresses = ["127.0.0.1" if loopback else f"10.0.0.{draw(st.integers(1, 4))}" for _ in names]
    lows = [draw(st.integers(2222, 2240)) for _ in names]
    hosts = tuple(
        Host(name=name, address=address, ports=(low, low + draw(st.integers(2, 30))))
        for name, address, low in zip(names, addresses, lows, strict=True)
    )
    some = st.lists(st.sampled_from(names), min_size=1, max_size=6, unique=True).map(tuple)
    roles = {"ps": draw(some), "worker": draw(some)}
    if draw(st.booleans()):
        roles["chief"] = draw(some)[:1]
    if draw(st.booleans()):
        roles["evaluator"] = draw(some)
    rule = st.builds(
        RoleRule, count=st.none() | st.integers(0, 5), per_host=st.none() | st.integers(1, 2)
    )
    return PlanCase(
        inventory=Inventory(hosts, roles),
        gpus={name: draw(st.integers(0, 3)) for name in names},
        taken={name: tuple(draw(st.sets(st.integers(2222, 2260), max_size=8))) for name in names},
        rules=draw(st.dictionaries(st.sampled_from(["ps", "worker"]), rule, max_size=2)),
        options=Options(workers=draw(st.none() | st.integers(1, 6))),
        mode=mode or draw(st.sampled_from(MODES)),
    )


def compute_plan(
    case: PlanCase, facts_of: Callable[..., HostFacts], *, backwards: bool = False
) -> Plan:
    facts = {}
    for host in sorted(case.inventory.hosts, key=lambda host: host.name, reverse=backwards):
        free = tuple(
            port
            for port in range(host.ports[0], host.ports[1] + 1)
            if port not in case.taken[host.name]
        )
        facts[host.name] = facts_of(host, case.gpus[host.name], free_ports=free)
    return make_plan(
        case.inventory,
        Job(
            name="j",
            mode=case.mode,
            command=("python", "t.py", "--me={job_name}{task_index}"),
            code="/code",
            roles=case.rules,
            keep=("ckpt",),
        ),
        facts,
        release="r",
        sources={"t.py": "import tensorflow"},
        run="j-1",
        now=1.0,
        operator="me@here",
        options=case.options,
    )


def plan_or_skip(case: PlanCase, facts_of: Callable[..., HostFacts]) -> Plan:
    """Return the plan for a random case. If tfdeploy refuses the plan, check that the error is
    complete, and skip the case.

    Any exception other than TfdeployError is a bug and fails the test.
    """
    try:
        return compute_plan(case, facts_of)
    except TfdeployError as error:
        assert error.what and error.next
        assume(False)
        raise


def tasks_of(plan: Plan, host: str) -> tuple[TaskPlan, ...]:
    return tuple(task for task in plan.tasks if task.host == host)


@given(plan_cases())
def test_ports_behind_one_address_are_unique(facts_of: Any, case: PlanCase) -> None:
    plan = plan_or_skip(case, facts_of)
    ports = [
        (shared_port_key(plan.host(task.host).address), task.port)
        for task in plan.tasks
        if task.port
    ]
    ports += [(shared_port_key(host.address), host.mesh_port) for host in plan.hosts]
    assert len(set(ports)) == len(ports)
    for host in plan.hosts:
        low, high = case.inventory.host(host.host).ports
        given = [host.mesh_port, *(task.port for task in tasks_of(plan, host.host) if task.port)]
        assert all(low <= port <= high and port not in case.taken[host.host] for port in given)


@given(plan_cases())
def test_gpus_are_unique_and_exist(facts_of: Any, case: PlanCase) -> None:
    plan = plan_or_skip(case, facts_of)
    given = Counter((task.host, gpu) for task in plan.tasks for gpu in task.gpus)
    assert all(count == 1 for count in given.values())
    assert all(gpu < case.gpus[host] for host, gpu in given)
    for task in plan.tasks:
        shared = tasks_of(plan, task.host) if rules_of(plan.mode).ranks else (task,)
        assert task.env["CUDA_VISIBLE_DEVICES"] == ",".join(
            str(gpu) for gpus_of_task in shared for gpu in gpus_of_task.gpus
        )
    assert not any(task.gpus for task in plan.tasks if task.role == "ps")


@given(plan_cases())
def test_every_task_is_on_host_of_its_role(facts_of: Any, case: PlanCase) -> None:
    plan = plan_or_skip(case, facts_of)
    for role, addresses in plan.cluster.items():
        tasks = [task for task in plan.tasks if task.role == role]
        assert [task.index for task in tasks] == list(range(len(addresses)))
        assert tuple(task.address for task in tasks) == addresses
        of = case.inventory.roles.get(role) or case.inventory.roles["worker"]
        assert all(task.host in of and task.why for task in tasks)
    assert {task.host for task in plan.tasks} == {host.host for host in plan.hosts}
    assert plan.deciding == tuple(task.task for task in plan.tasks if task.deciding)
    trains = [task.task for task in plan.tasks if task.role in ("chief", "worker")]
    assert plan.deciding == (
        tuple(trains) if rules_of(case.mode).all_decide else (sorted(trains)[0],)
    )


@given(plan_cases())
def test_cluster_has_exactly_tasks_with_ports_and_deciding_tasks_do_not_serve(
    facts_of: Any, case: PlanCase
) -> None:
    plan = plan_or_skip(case, facts_of)
    listed = {address for addresses in plan.cluster.values() for address in addresses}
    listed |= {
        endpoint(env["MASTER_ADDR"], int(env["MASTER_PORT"]))
        for env in (task.env for task in plan.tasks)
        if "RANK" in env
    }
    assert (
        {task.address for task in plan.tasks if task.port}
        == listed
        == {task.address for task in plan.tasks} - {""}
    )
    assert not any(task.deciding and task.serves for task in plan.tasks)
    for task in plan.tasks:
        tf_config = json.loads(task.env.get("TF_CONFIG", "{}"))
        assert tf_config.get("cluster", {}) == {
            role: list(addresses) for role, addresses in plan.cluster.items()
        }
        assert tf_config == {} or tf_config["task"] == {"type": task.role, "index": task.index}
        meets = task.task == "worker:0" and rules_of(plan.mode).ranks
        assert (task.role in plan.cluster or meets) == (task.port is not None)


@given(plan_cases("plain"))
def test_ranks_of_host_are_consecutive_as_with_torchrun(facts_of: Any, case: PlanCase) -> None:
    plan = plan_or_skip(case, facts_of)
    ranks_by_task = [{name: int(task.env[name]) for name in RANKS} for task in plan.tasks]
    assert (
        [ranks["RANK"] for ranks in ranks_by_task]
        == list(range(len(ranks_by_task)))
        == [task.index for task in plan.tasks]
    )
    tasks_by_host = Counter(task.host for task in plan.tasks)
    for task, ranks in zip(plan.tasks, ranks_by_task, strict=True):
        first = ranks["RANK"] - ranks["LOCAL_RANK"]
        assert (ranks["WORLD_SIZE"], ranks["LOCAL_WORLD_SIZE"]) == (
            len(ranks_by_task),
            tasks_by_host[task.host],
        )
        assert {other.host for other in plan.tasks[first : first + tasks_by_host[task.host]]} == {
            task.host
        }
    assert len({(task.env["MASTER_ADDR"], task.env["MASTER_PORT"]) for task in plan.tasks}) == 1
    assert not any(
        "TF_CONFIG" in task.env or "TF_GRPC_REUSE_PORT" in task.env for task in plan.tasks
    )


@given(plan_cases())
def test_plans_and_parts_are_unchanged_by_json(facts_of: Any, case: PlanCase) -> None:
    plan = plan_or_skip(case, facts_of)
    plan_read = plan_from_json(json.loads(json.dumps(plan_to_json(plan))))
    assert plan_read == plan
    assert plan_read.digest == plan.digest
    assert plan_from_file(json.dumps(plan_to_file(plan)).encode()) == plan
    # Older versions wrote a plan in this form.
    assert plan_from_file(json.dumps(plan_to_json(plan)).encode()) == plan
    texts = shared_part(plan)["texts"]
    for part in host_parts(plan, {}).values():
        part_read = wire.from_wire(wire.HostPart, json.loads(json.dumps(wire.to_wire(part))))
        assert part_read == part
        specs = [wire.resolve_words(spec, texts) for spec in part_read.tasks]
        assert [(spec.argv, spec.env) for spec in specs] == [
            (list(task.argv), task.env) for task in tasks_of(plan, part.host)
        ]


@given(plan_cases())
def test_order_of_facts_does_not_matter(facts_of: Any, case: PlanCase) -> None:
    plan = plan_or_skip(case, facts_of)
    assert compute_plan(case, facts_of, backwards=True) == plan
