"""Test on which hosts and GPUs tasks are placed. The hosts get tasks in turn. The number of tasks
comes from the job, from the command line, or from the GPUs of the hosts.

The tests are tables. A row has the roles and the GPUs of the hosts, and the expected tasks with
their hosts and GPUs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tfdeploy.errors import TfdeployError
from tfdeploy.model.job import Job, Mode, RoleRule
from tfdeploy.model.modes import rules_of
from tfdeploy.planning.cluster.placement import place_tasks
from tfdeploy.planning.cluster.role_requests import role_requests, with_default_roles
from tfdeploy.planning.options import Options

TABLE: list[tuple[dict[str, str], dict[str, int], dict[str, RoleRule], dict[str, int], str]] = [
    # (roles, GPUs by host, rules of the job, options, expected tasks). "p0@n1" is ps:0 on n1.
    ({"ps": "n1 n2", "worker": "n2 n3"}, {}, {}, {}, "p0@n1 p1@n2 w0@n2 w1@n3"),
    ({"ps": "n1", "worker": "n2 n3"}, {"n2": 2, "n3": 1}, {}, {},
        "p0@n1 w0@n2[0] "
        "w1@n3[0] w2@n2[1]"),
    ({"ps": "n1", "worker": "n2 n3"}, {"n3": 2}, {}, {}, "p0@n1 w0@n2 w1@n3[0] w2@n3[1]"),
    ({"ps": "n1", "worker": "n2 n3"}, {"n2": 2, "n3": 2}, {}, {"workers": 3},
        "p0@n1 w0@n2[0] "
        "w1@n3[0] w2@n2[1]"),
    ({"ps": "n1", "worker": "n2 n3"}, {"n2": 1, "n3": 3}, {}, {"workers": 4},
        "p0@n1 w0@n2[0] w1@n3[0] "
        "w2@n3[1] w3@n3[2]"),
    ({"ps": "n1", "worker": "n2"}, {"n2": 1}, {"worker": RoleRule(count=2, gpus=0)}, {},
        "p0@n1 w0@n2 "
        "w1@n2"),
    ({"ps": "n1", "worker": "n2"}, {"n2": 4}, {"worker": RoleRule(gpus=2)}, {},
        "p0@n1 w0@n2[0,1] "
        "w1@n2[2,3]"),
    ({"ps": "n1", "worker": "n2"}, {"n2": 5}, {"worker": RoleRule(gpus=2)}, {},
        "p0@n1 w0@n2[0,1] "
        "w1@n2[2,3]"),
    ({"ps": "n1", "worker": "n2 n3"}, {}, {"worker": RoleRule(per_host=2)}, {},
        "p0@n1 w0@n2 w1@n3 "
        "w2@n2 w3@n3"),
    ({"ps": "n1", "worker": "n2 n3"}, {}, {"worker": RoleRule(count=3, per_host=2)}, {},
        "p0@n1 w0@n2 w1@n3 "
        "w2@n2"),
    ({"ps": "n1 n2", "worker": "n2"}, {}, {"ps": RoleRule(count=3)}, {"ps": 1}, "p0@n1 w0@n2"),
    ({"ps": "n1", "chief": "n2", "worker": "n2"}, {"n2": 2}, {}, {}, "p0@n1 c0@n2[0] w0@n2[1]"),
    ({"ps": "n1", "chief": "n2", "worker": "n2"}, {"n2": 2}, {"worker": RoleRule(gpus=1)}, {},
        "p0@n1 c0@n2[0] "
        "w0@n2[1]"),
    ({"ps": "n1", "chief": "n2 n3", "worker": "n3"}, {}, {"chief": RoleRule(count=1)}, {},
        "p0@n1 c0@n2 "
        "w0@n3"),
    ({"ps": "n1", "worker": "n2", "evaluator": "n2"}, {"n2": 2}, {}, {},
        "p0@n1 w0@n2[0] "
        "w1@n2[1] e0@n2"),
    (
        {"ps": "n1", "worker": "n2", "evaluator": "n2"},
        {"n2": 2},
        {"evaluator": RoleRule(gpus=1)},
        {},
        "p0@n1 w0@n2[1] e0@n2[0]",
    ),
]  # fmt: skip


def place_as_text(
    roles: Any,
    gpus: Any,
    role_rules: Any,
    options: Any,
    inventory: Any,
    facts_of: Any,
    first: Any = None,
    mode: Mode = "async",
) -> str:
    hosts = inventory(**roles)
    job = Job(name="j", mode=mode, command=("python", "t.py"), code="/code", roles=role_rules)
    by_name = {host.name: host for host in hosts.hosts}
    facts = {host.name: facts_of(host, gpus.get(host.name, 0)) for host in hosts.hosts}
    placed = place_tasks(role_requests(hosts, job, Options(**options)), by_name, facts, first or {})
    return " ".join(
        f"{seat.role[0]}{seat.index}@{seat.host}"
        + (f"[{','.join(map(str, seat.gpus))}]" if seat.gpus else "")
        for seat in placed
    )


@pytest.mark.parametrize(("roles", "gpus", "rules", "options", "expected"), TABLE)
def test_placed_tasks(
    roles: Any, gpus: Any, rules: Any, options: Any, expected: str, inventory: Any, facts_of: Any
) -> None:
    assert place_as_text(roles, gpus, rules, options, inventory, facts_of) == expected


@pytest.mark.parametrize(
    ("mode", "hosts", "expected"),
    [
        ("async", "n1 n2 n3", {"ps": "n1", "worker": "n2 n3"}),
        ("sync", "n1", {"ps": "n1", "worker": "n1"}),
        ("coordinator", "n1 n2 n3", {"ps": "n1", "chief": "n1", "worker": "n2 n3"}),
        ("ingraph", "n1 n2", {"chief": "n1", "worker": "n2"}),
        ("mirrored", "n1 n2", {"worker": "n1 n2"}),
        ("local", "n1 n2", {"worker": "n1 n2"}),
        ("plain", "n1 n2", {"worker": "n1 n2"}),
    ],
)
def test_roles_not_named_in_inventory(
    mode: Mode, hosts: str, expected: dict[str, str], inventory: Any
) -> None:
    named = replace(inventory(worker=hosts), roles={})
    roles = with_default_roles(named, rules_of(mode)).roles
    assert roles == {role: tuple(names.split()) for role, names in expected.items()}
    assert with_default_roles(inventory(worker=hosts), rules_of(mode)) == inventory(worker=hosts)


@pytest.mark.parametrize(
    ("mode", "gpus", "rule", "expected"),
    [
        ("async", {}, RoleRule(), "p0@n1 w0@n2 w1@n3 w2@n3"),
        ("plain", {}, RoleRule(), "w0@n2 w1@n3 w2@n3"),
        ("async", {"n3": 2}, RoleRule(), "p0@n1 w0@n2 w1@n3[0] w2@n3[1]"),
        ("async", {"n3": 1}, RoleRule(), "n3 has GPU 0 left; ask for fewer tasks under `slots`"),
        ("async", {"n3": 1}, RoleRule(gpus=0), "p0@n1 w0@n2 w1@n3 w2@n3"),
        ("async", {}, RoleRule(per_host=1), "p0@n1 w0@n2 w1@n3"),
        ("async", {}, RoleRule(count=2), "p0@n1 w0@n2 w1@n3"),
        ("coordinator", {}, RoleRule(), "p0@n1 c0@n2 w0@n2 w1@n3"),
        ("mirrored", {"n2": 2, "n3": 2}, RoleRule(), "w0@n2[0,1] w1@n3[0,1]"),
    ],
)
def test_slots_are_workers_of_host(
    mode: Mode, gpus: Any, rule: RoleRule, expected: str, inventory: Any, facts_of: Any
) -> None:
    plain = inventory(ps="n1", worker="n2 n3")
    slots = {"n3": 2}
    named = replace(
        plain, hosts=tuple(replace(host, slots=slots.get(host.name)) for host in plain.hosts)
    )
    try:
        placed = place_as_text({}, gpus, {"worker": rule}, {}, lambda: named, facts_of, mode=mode)
    except TfdeployError as error:
        placed = f"{error.what}; {error.next}"
    assert expected in placed


def test_first_host_can_be_chosen(inventory: Any, facts_of: Any) -> None:
    roles = {"ps": "n1", "worker": "n2 n3 n4"}
    placed = place_as_text(roles, {}, {}, {"workers": 2}, inventory, facts_of, {"worker": "n4"})
    assert placed == "p0@n1 w0@n4 w1@n2"


@pytest.mark.parametrize(
    ("roles", "gpus", "rules", "options", "words"),
    [
        ({"worker": "n2"}, {"n2": 1}, {}, {"workers": 2},
         ["--workers 2", "room for only 1", "n2 1"]),
        ({"worker": "n2 n3"}, {"n2": 1}, {"worker": RoleRule(gpus=1)}, {},
         ["worker on n3", "n3 has none"]),
        ({"worker": "n2"}, {"n2": 3}, {"worker": RoleRule(per_host=2, gpus=2)}, {},
         ["with 2 GPU each", "GPU 0, 1, 2 left"]),
        ({"worker": "n2"}, {}, {"worker": RoleRule(count=3, per_host=2)}, {},
         ["asks for 3", "per_host"]),
        ({"worker": "n2"}, {}, {"chief": RoleRule(count=1)}, {}, ["no host for the role chief"]),
        ({"worker": "n2"}, {}, {}, {"ps": 2}, ["--ps 2", "no host for the role ps"]),
    ],
)  # fmt: skip
def test_refused_placement(
    roles: Any, gpus: Any, rules: Any, options: Any, words: list[str], inventory: Any, facts_of: Any
) -> None:
    with pytest.raises(TfdeployError) as refused:
        place_as_text(roles, gpus, rules, options, inventory, facts_of)
    assert [word for word in words if word not in refused.value.what] == []
    assert refused.value.next
