"""Golden plans: each file of plans/ holds the values that make_plan gets and the plan, or the
refusal, it must give.

A case leaves out what every host and job of these tests has (see HOST and FACTS). After a change
that is meant to change plans:  python tests/golden/test_plans.py          shows the differences as
a diff and exits 1
               python tests/golden/test_plans.py --write  shows them and writes them: read them
               before you commit
"""

from __future__ import annotations

import difflib
import json
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tfdeploy.errors import TfdeployError
from tfdeploy.model.facts import HostFacts
from tfdeploy.model.inventory import Inventory
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


def read_inventory(case: dict[str, Any]) -> Inventory:
    hosts = [{"name": name, **fields} for name, fields in case["inventory"]["hosts"].items()]
    return msgspec.convert({"hosts": hosts, "roles": case["inventory"].get("roles", {})}, Inventory)


def read_facts(case: dict[str, Any], inventory: Inventory) -> dict[str, HostFacts]:
    """The defaults, all ports of the host's range but the taken ones, then what the case says."""
    found = {}
    for host in inventory.hosts:
        said = {
            "host": host.name,
            "hostname": host.name,
            **FACTS,
            **case.get("facts", {}).get(host.name, {}),
        }
        taken = {int(port) for port in said.get("taken_ports", {})}
        said.setdefault(
            "free_ports",
            [port for port in range(host.ports[0], host.ports[1] + 1) if port not in taken],
        )
        said["gpus"] = [
            {"name": "H200", "memory_mib": 143771, "used_mib": 0, **gpu}
            for gpu in said.get("gpus", [])
        ]
        found[host.name] = msgspec.convert(said, HostFacts)
    return found


def planned(case: dict[str, Any]) -> Plan:
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


def outcome(case: dict[str, Any]) -> dict[str, Any]:
    """What the case gives now, as it stands in its file under "expect"."""
    try:
        plan = planned(case)
    except TfdeployError as error:
        return error.as_json()
    fields: dict[str, Any] = json.loads(json.dumps(plan_to_json(plan)))
    return {"plan": fields}


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_plan_is_as_recorded(path: Path) -> None:
    case = json.loads(path.read_text())
    assert outcome(case) == case["expect"], (
        "if the change is meant: python tests/golden/test_plans.py --write"
    )


@pytest.mark.parametrize(
    "path", [path for path in CASES if '"plan"' in path.read_text()], ids=lambda path: path.stem
)
def test_recorded_plan_round_trips(path: Path) -> None:
    fields = json.loads(path.read_text())["expect"]["plan"]
    plan = plan_from_json(fields)
    assert json.loads(json.dumps(plan_to_json(plan))) == fields
    assert plan == planned(json.loads(path.read_text()))


def test_there_are_cases() -> None:
    assert len(CASES) >= 25


def _differences(path: Path) -> tuple[str, list[str]]:
    old = path.read_text()
    case = json.loads(old)
    new = json.dumps({**case, "expect": outcome(case)}, indent=1) + "\n"
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
