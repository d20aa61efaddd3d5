"""Check that each output of --json has a JSON Schema in docs/json and an example in docs/json.md.

The schema, the example and the code must agree. Lab tests also compare real output with the
schemas, in the method `Tfdeploy.json`.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from support.schemas import find_faults, find_printed_faults, find_schema_name
from tfdeploy.cli.main import main
from tfdeploy.cli.verb_table import VERBS
from tfdeploy.errors import HostUnreachable, TfdeployError, UsageError
from tfdeploy.model.inventory import Host
from tfdeploy.model.output.printed import (
    PRINTED,
    InventoryHostRow,
    printed_by,
    schema_of,
    schema_text,
)

DOCS = Path(__file__).parents[2] / "docs"
NO_JSON = {"ssh"}
RENEW = "python scripts/json_schemas.py writes them"
EXAMPLES = dict(
    re.findall(r"^### (\S+)\n\n```json\n(.*?)```", (DOCS / "json.md").read_text(), re.M | re.S)
)


def test_every_verb_has_a_schema() -> None:
    assert {printed_by(name).split()[0] for name in PRINTED} - {"any"} == set(VERBS) - NO_JSON
    assert set(VERBS) - NO_JSON <= set(PRINTED)


def test_schemas_in_docs_are_current() -> None:
    assert {path.name for path in (DOCS / "json").iterdir()} == {
        f"{name}.schema.json" for name in PRINTED
    }, RENEW
    for name in PRINTED:
        assert (DOCS / "json" / f"{name}.schema.json").read_text() == schema_text(name), RENEW


def test_page_names_every_schema() -> None:
    rows = re.findall(
        r"^\| `(.+)` \| \[(\S+)\]\(json/(\S+)\.schema\.json\) \|",
        (DOCS / "json.md").read_text(),
        re.M,
    )
    assert {name: words for words, name, file in rows if name == file} == {
        name: printed_by(name) for name in PRINTED
    }
    # The example of launch-dry-run is in docs/reference-plan.md.
    assert set(EXAMPLES) == set(PRINTED) - {"launch-dry-run"}


@pytest.mark.parametrize("name", EXAMPLES)
def test_example_matches_schema(name: str) -> None:
    schema = schema_of(name)
    assert list(find_faults(json.loads(EXAMPLES[name]), schema, schema["$defs"])) == []


@pytest.mark.parametrize(
    ("was", "instead", "fault"),
    [
        ('"step": 1200', '"step": "1200"', ".tasks[0].step: '1200' is no integer"),
        (
            '"state": "running", "health"',
            '"state": "going", "health"',
            ".tasks[0].state: 'going' is none of",
        ),
        ('"accuracy": 0.91', '"accuracy": null', ".tasks[0].metrics.accuracy: None is no number"),
        ('"attempt": 1,', "", ".tasks[0].attempt is missing"),
        ('"attempt": 1', '"attempt": 1, "tries": 1', ".tasks[0].tries is not in the schema"),
        ('"attempt": 1', '"attempt": true', ".tasks[0].attempt: True is no integer"),
        ('"gpus": [0]', '"gpus": ["0"]', ".tasks[0].gpus[0]: '0' is no integer"),
    ],
)
def test_planted_fault_is_found(was: str, instead: str, fault: str) -> None:
    assert was in EXAMPLES["status"]
    (faults_found,) = find_printed_faults(
        ["status"], json.loads(EXAMPLES["status"].replace(was, instead, 1))
    )
    assert faults_found.startswith(fault)


def test_schema_for_command_and_output() -> None:
    cases: list[tuple[list[str], Any, str]] = [
        (["-i", "x", "status"], {}, "status"),
        (["sync", "--dry-run"], {}, "sync-dry-run"),
        (["lab", "down"], {}, "lab-down"),
        (["status"], {"error": {}}, "error"),
    ]
    assert [find_schema_name(words, value) for words, value, _ in cases] == [
        name for *_, name in cases
    ]


def test_errors_match_schema(capsys: pytest.CaptureFixture[str]) -> None:
    for error in (
        TfdeployError("a"),
        UsageError("b", where="here", next="there"),
        HostUnreachable("c", where="n1"),
    ):
        assert find_printed_faults(["status"], error.as_json()) == []
    assert main(["status", "--nothing", "--json"]) == 2
    assert find_printed_faults(["status"], json.loads(capsys.readouterr().out)) == []


def test_host_row_of_inventory_has_key_for_each_setting() -> None:
    # The row has the key "from" instead of the field `places` (the file and line of each setting).
    settings = Host.__annotations__.keys() - {"places"}
    assert set(InventoryHostRow.__annotations__) == {*settings, "roles", "from"}


def test_docs_prints_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["docs", "--schema", "sync-dry-run"]) == 0
    assert capsys.readouterr().out == schema_text("sync-dry-run")
    assert main(["docs", "--schema", "nothing"]) == 2
    assert "one of: init, inventory" in capsys.readouterr().err
