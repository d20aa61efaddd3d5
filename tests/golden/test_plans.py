"""Compare the plans that make_plan returns with recorded plans (golden plans).

Each file of plans/ is one case: the arguments of make_plan, and the plan or the error that it must
return. A case omits the facts and job fields that all cases share (FACTS and JOB). The recorded
plan omits every field that has its default, so a new field with a default changes no file.

After an intended change of plans:

    python tests/golden/test_plans.py          show the differences, exit 1
    python tests/golden/test_plans.py --write  show the differences and write the new plans; read
                                               the differences before you commit
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tfdeploy.errors import TfdeployError
from tfdeploy.model.facts import HostFacts
from tfdeploy.model.inventory import Host, Inventory, settings_of
from tfdeploy.model.job import Job
from tfdeploy.model.plan import Plan, plan_from_json, plan_to_json
from tfdeploy.planning.options import Options
from tfdeploy.planning.plan import make_plan

FOLDER = Path(__file__).parent / "plans"
CASES = sorted(FOLDER.glob("*.json"))
FACTS: dict[str, Any] = {
    "user": "ml",
    "home": "/home/ml",
    "workdir": "/home/ml/tfdeploy",
    "python": "/usr/bin/python3",
    "python_version": "3.11.2",
    "cores": 8,
    "free_disk_bytes": 100 << 30,
    "free_inodes": 1_000_000,
    "boot_id": "b",
    "clock": 1_800_000_000.0,
    "tensorflow": "2.21.0",
    "rsync": "3.2.7",
    "protect": {"peers": "", "firewall": "nft is not installed", "most_instructions": 1250},
}
JOB: dict[str, Any] = {
    "name": "digits",
    "mode": "async",
    "command": ["python", "train.py"],
    "code": "/code",
}
SETTINGS: dict[str, Any] = json.loads(
    json.dumps(settings_of(Host(name="", address="")))
)  # the defaults of all settings


def read_inventory(case: dict[str, Any]) -> Inventory:
    hosts = [{"name": name, **fields} for name, fields in case["inventory"]["hosts"].items()]
    return msgspec.convert({"hosts": hosts, "roles": case["inventory"].get("roles", {})}, Inventory)


def read_facts(case: dict[str, Any], inventory: Inventory) -> dict[str, HostFacts]:
    """Return the facts of each host: FACTS, with the changes that the case makes.

    All ports of a host's range are free, except those that the case lists as taken.
    """
    facts_by_host = {}
    for host in inventory.hosts:
        fields = {
            "host": host.name,
            "hostname": host.name,
            **FACTS,
            **case.get("facts", {}).get(host.name, {}),
        }
        taken_ports = {int(port) for port in fields.get("taken_ports", {})}
        fields.setdefault(
            "free_ports",
            [port for port in range(host.ports[0], host.ports[1] + 1) if port not in taken_ports],
        )
        fields["gpus"] = [
            {"name": "H200", "memory_mib": 143771, "used_mib": 0, **gpu}
            for gpu in fields.get("gpus", [])
        ]
        facts_by_host[host.name] = msgspec.convert(fields, HostFacts)
    return facts_by_host


def plan_case(case: dict[str, Any]) -> Plan:
    inventory = read_inventory(case)
    return make_plan(
        inventory,
        msgspec.convert({**JOB, **case.get("job", {})}, Job),
        read_facts(case, inventory),
        release="c0ffee",
        sources={path: "\n".join(lines) + "\n" for path, lines in case.get("sources", {}).items()},
        run="digits-20270115-080000-c0de",
        now=1_800_000_000.0,
        operator="ml@desk",
        options=msgspec.convert(case.get("options", {}), Options),
    )


def compute_outcome(case: dict[str, Any]) -> dict[str, Any]:
    """Return the plan or the error for the case, in the form that the field "expect" of the case's
    file has.
    """
    try:
        plan = plan_case(case)
    except TfdeployError as error:
        return error.as_json()
    return {"plan": record(plan)}


def record(plan: Plan) -> dict[str, Any]:
    """Return the JSON form of a plan. Fields of the plan and settings of its hosts are left out if
    they have their default value.
    """
    fields: dict[str, Any] = drop_defaults(plan, json.loads(json.dumps(plan_to_json(plan))))
    for host in fields["hosts"]:
        host["ssh"] = {key: text for key, text in host["ssh"].items() if text != SETTINGS.get(key)}
    return fields


def drop_defaults(value: Any, encoded: Any) -> Any:
    """Return `encoded` (the JSON form of `value`) without the dataclass fields that have their
    default value.

    `value` is a plan or a part of one.
    """
    if dataclasses.is_dataclass(value):
        return {
            field.name: drop_defaults(getattr(value, field.name), encoded[field.name])
            for field in dataclasses.fields(value)
            if not has_default(value, field)
        }
    if isinstance(value, dict):
        return {key: drop_defaults(part, encoded[key]) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [
            drop_defaults(item, encoded_item)
            for item, encoded_item in zip(value, encoded, strict=True)
        ]
    return encoded


def has_default(value: Any, field: dataclasses.Field[Any]) -> bool:
    """Return True if `value` has the default of this dataclass field."""
    if field.default_factory is not dataclasses.MISSING:
        return bool(getattr(value, field.name) == field.default_factory())
    return bool(getattr(value, field.name) == field.default)


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_plan_is_as_recorded(path: Path) -> None:
    case = json.loads(path.read_text())
    assert compute_outcome(case) == case["expect"], (
        "if the change is intended: python tests/golden/test_plans.py --write"
    )


@pytest.mark.parametrize(
    "path", [path for path in CASES if '"plan"' in path.read_text()], ids=lambda path: path.stem
)
def test_recorded_plan_round_trips(path: Path) -> None:
    fields = json.loads(path.read_text())["expect"]["plan"]
    plan = plan_from_json(fields)
    assert record(plan) == fields
    for host in fields["hosts"]:
        host["ssh"] = SETTINGS | host["ssh"]
    assert plan_from_json(fields) == plan_case(json.loads(path.read_text()))


@pytest.mark.parametrize(
    ("change", "recorded"),
    [
        ({}, False),
        ({"restart_max": 3}, True),
        ({"resume": "checkpoints: ckpt-1 on n1"}, True),
        ({"ready_after_s": 0.0}, True),
    ],
)
def test_only_fields_with_other_values_than_their_defaults_are_recorded(
    change: dict[str, Any], recorded: bool
) -> None:
    case = next(
        case for path in CASES if "plan" in (case := json.loads(path.read_text()))["expect"]
    )
    plan = dataclasses.replace(plan_case(case), restart_max=0, resume=None, ready_after_s=5.0)
    changed = dataclasses.replace(plan, **change)
    fields = drop_defaults(changed, json.loads(json.dumps(plan_to_json(changed))))
    names = {"restart_max", "resume", "ready_after_s"}
    assert {name: fields[name] for name in names & fields.keys()} == change
    assert (fields != drop_defaults(plan, json.loads(json.dumps(plan_to_json(plan))))) is recorded


def test_there_are_cases() -> None:
    assert len(CASES) >= 25


def _differences(path: Path) -> tuple[str, list[str]]:
    old = path.read_text()
    case = json.loads(old)
    new = json.dumps({**case, "expect": compute_outcome(case)}, indent=1) + "\n"
    return new, list(
        difflib.unified_diff(old.splitlines(), new.splitlines(), path.name, path.name, lineterm="")
    )


def main(words: list[str]) -> int:
    changed = False
    for path in CASES:
        new, difference = _differences(path)
        if difference:
            changed = True
            print("\n".join(difference))
            if "--write" in words:
                path.write_text(new)
    return int(changed and "--write" not in words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
