"""Test how tasks are placed: counts, round-robin and GPUs, as tables.

A row has roles and GPUs of hosts, and the tasks with their host and GPUs.
"""

from __future__ import annotations

from typing import Any

import pytest

from tfdeploy.errors import TfdeployError
from tfdeploy.model.job import Job, RoleRule
from tfdeploy.planning.cluster.placement import place_tasks
from tfdeploy.planning.cluster.role_requests import role_requests
from tfdeploy.planning.options import Options

TABLE: list[tuple[dict[str, str], dict[str, int], dict[str, RoleRule], dict[str, int], str]] = [
    # roles, GPUs, the job's rules, options, tasks by the first letter of their role
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


def seats(
    roles: Any,
    gpus: Any,
    rules: Any,
    options: Any,
    inventory: Any,
    facts_of: Any,
    first: Any = None,
) -> str:
    hosts = inventory(**roles)
    job = Job(name="j", mode="async", command=("python", "t.py"), code="/code", roles=rules)
    by_name = {host.name: host for host in hosts.hosts}
    facts = {host.name: facts_of(host, gpus.get(host.name, 0)) for host in hosts.hosts}
    placed = place_tasks(role_requests(hosts, job, Options(**options)), by_name, facts, first or {})
    return " ".join(
        f"{seat.role[0]}{seat.index}@{seat.host}"
        + (f"[{','.join(map(str, seat.gpus))}]" if seat.gpus else "")
        for seat in placed
    )


@pytest.mark.parametrize(("roles", "gpus", "rules", "options", "expected"), TABLE)
def test_seats(
    roles: Any, gpus: Any, rules: Any, options: Any, expected: str, inventory: Any, facts_of: Any
) -> None:
    assert seats(roles, gpus, rules, options, inventory, facts_of) == expected


def test_the_first_host_can_be_asked_for(inventory: Any, facts_of: Any) -> None:
    roles = {"ps": "n1", "worker": "n2 n3 n4"}
    placed = seats(roles, {}, {}, {"workers": 2}, inventory, facts_of, {"worker": "n4"})
    assert placed == "p0@n1 w0@n4 w1@n2"


@pytest.mark.parametrize(
    ("roles", "gpus", "rules", "options", "words"),
    [
        ({"worker": "n2"}, {"n2": 1}, {}, {"workers": 2}, ["--workers 2", "room for 1", "n2 1"]),
        ({"worker": "n2 n3"}, {"n2": 1}, {"worker": RoleRule(gpus=1)}, {}, ["worker on n3", "n3 has none"]),
        ({"worker": "n2"}, {"n2": 3}, {"worker": RoleRule(per_host=2, gpus=2)}, {}, [
            "with 2 GPU "
            "each", "GPU 0, 1, 2 left"]),
        ({"worker": "n2"}, {}, {"worker": RoleRule(count=3, per_host=2)}, {}, ["asks for 3", "per_host"]),
        ({"worker": "n2"}, {}, {"chief": RoleRule(count=1)}, {}, ["no host for the role chief"]),
        ({"worker": "n2"}, {}, {}, {"ps": 2}, ["--ps 2", "no host for the role ps"]),
    ],
)  # fmt: skip
def test_refused(
    roles: Any, gpus: Any, rules: Any, options: Any, words: list[str], inventory: Any, facts_of: Any
) -> None:
    with pytest.raises(TfdeployError) as refused:
        seats(roles, gpus, rules, options, inventory, facts_of)
    assert [word for word in words if word not in refused.value.what] == []
    assert refused.value.next
