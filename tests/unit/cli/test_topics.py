"""Test `tfdeploy docs TOPIC`: each topic is complete, as text and as JSON, and agrees with the
code.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import tfdeploy
from support.schemas import find_printed_faults
from tfdeploy.agent.serve.probe import PRESET, PROXIES
from tfdeploy.agent.wire import TASK_MARKERS
from tfdeploy.cli.arguments.docs import TOPICS
from tfdeploy.cli.main import main
from tfdeploy.config.jobvalues import RESERVED
from tfdeploy.errors import EXIT_CODES
from tfdeploy.model.job import MODES
from tfdeploy.planning.cluster import ranks
from tfdeploy.planning.environment import HELD_PORT, NO_PROXY

PACKAGE = Path(tfdeploy.__file__).parent
# This folder contains names of environment variables that users' programs read. These variables do
# not affect tfdeploy.
OF_PROGRAMS = PACKAGE / "planning" / "program"


def answer_of(topic: str, capsys: pytest.CaptureFixture[str]) -> Any:
    assert main(["docs", topic, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def keys_of(topic: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    sections = answer_of(topic, capsys)["sections"]
    return [row["key"] for section in sections for row in section["rows"]]


@pytest.mark.parametrize("topic", TOPICS)
def test_topic_is_printed_as_text_and_json(topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    answer = answer_of(topic, capsys)
    assert find_printed_faults(["docs", topic], answer) == []
    assert main(["docs", topic]) == 0
    text = capsys.readouterr().out
    for section in answer["sections"]:
        assert section["rows"] and section["title"] in text.splitlines()
        for row in section["rows"]:
            assert row["text"] and re.search(rf"^  {re.escape(row['key'])} ", text, re.M)


def test_docs_prints_keys_of_both_files(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["docs"]) == 0
    headings = re.findall(r"^[A-Z]+(?: [A-Z]+)*", capsys.readouterr().out, re.M)
    assert headings == ["INVENTORY", "A HOST", "JOB", "PLACEHOLDERS"]


@pytest.mark.parametrize(
    ("key", "keys"),
    [("mode", ["mode"]), ("stall", ["stall.after", "stall.action"]), ("RANK", ["RANK"])],
)
def test_topic_may_be_key(key: str, keys: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert keys_of(key, capsys) == keys


def test_unknown_topic_is_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["docs", "enviroment"]) == 2
    error = capsys.readouterr().err
    assert "there is no 'enviroment'" in error and "did you mean environment?" in error


def test_topics_have_all_modes_and_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert set(keys_of("modes", capsys)) == set(MODES)
    assert keys_of("exit-codes", capsys) == [str(code) for code in EXIT_CODES]


def test_topic_has_every_variable_in_code(capsys: pytest.CaptureFixture[str]) -> None:
    answer = answer_of("environment", capsys)
    rows = [row for section in answer["sections"] for row in section["rows"]]
    names = set(re.findall(r"\w+", " ".join(row["key"] + " " + row["text"] for row in rows)))
    names |= {name.lower() for name in names if name.lower() in PROXIES}
    used: set[str] = set()
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text("utf-8")
        used |= set(re.findall(r'["\' ](TFDEPLOY_[A-Z_]+[A-Z])(?![A-Z_<])', text))
        if OF_PROGRAMS not in path.parents:
            read = r'(?:environ|env)(?:\.get\(|\.pop\(|\[)\s*"(\w+)"'
            used |= set(re.findall(read, text))
    used = {name for name in used if not name.endswith("_")}
    assert len(used) > 30
    assert used - names == set(), "tfdeploy/cli/topics.py has the table"
    documented = {row["key"] for row in rows if row["key"].startswith("TFDEPLOY_")}
    options = {row["key"] for row in answer["sections"][0]["rows"]}
    parts = {"TFDEPLOY_DATA_<NAME>_PART", "TFDEPLOY_DATA_<NAME>_PARTS"}
    assert documented - options - parts <= used


def test_topic_has_variables_of_tasks(capsys: pytest.CaptureFixture[str]) -> None:
    section = answer_of("environment", capsys)["sections"][2]
    text = json.dumps(section)
    for name in (*RESERVED, *TASK_MARKERS, *NO_PROXY, *HELD_PORT, *ranks.VARIABLES, *PRESET):
        assert re.search(rf"\b{name}\b", text), name
