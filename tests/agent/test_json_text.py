"""Test the agent's own JSON code, which does not import Python's package json. It must write and
read the same texts as that package, and accept no other texts.
"""

from __future__ import annotations

import json
import math
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from support.agent.interpreter import AGENT_PYTHON
from tfdeploy.agent import json_text

ROOT = str(Path(__file__).resolve().parents[2])
VALUES = some.recursive(
    some.none() | some.booleans() | some.integers() | some.floats(allow_nan=False) | some.text(),
    lambda inner: some.lists(inner) | some.dictionaries(some.text(), inner),
)


@given(VALUES)
def test_it_writes_what_the_package_writes_and_reads_it_back(value: Any) -> None:
    text = json_text.encode(value).decode()
    assert text == json.dumps(value, separators=(",", ":")) and text.isascii()
    assert json_text.loads(text) == json_text.loads(f"\n {text}\t".encode()) == value


@pytest.mark.parametrize(
    "text",
    [
        '"\udcff \U0001f600"',
        "[1e400, -0.0, 1E2]",
        '{"a": 1, "a": 2}',
        "[NaN, -Infinity]",
        '"\u00e9"',
    ],
)
def test_odd_values_are_the_package_s(text: str) -> None:
    ours, theirs = json_text.loads(text), json.loads(text)
    assert repr(ours) == repr(theirs)


def test_a_number_that_is_none_stays_one() -> None:
    assert math.isnan(json_text.loads("NaN"))


@pytest.mark.parametrize(
    "text", ["", " ", "{", "[1,]", "1 2", "nul", "'a'", '"\n"', '{"a"}', "[1}", "\x00", b"\xff"]
)
def test_what_the_package_refuses_is_refused(text: str | bytes) -> None:
    for loads in (json_text.loads, json.loads):
        with pytest.raises(ValueError):
            loads(text)


def test_what_nests_too_deep_is_refused() -> None:
    with pytest.raises(RecursionError):
        json_text.loads("[" * 200_000)


@pytest.mark.parametrize("value", [{1, 2}, b"x", object(), {(1,): 2}])
def test_what_is_no_json_is_refused(value: object) -> None:
    for dumps in (json_text.encode, json.dumps):
        with pytest.raises(TypeError):
            dumps(value)


def said_by(code: str) -> str:
    words = [AGENT_PYTHON, "-S", "-E", "-c", f"import sys; sys.path.insert(0, {ROOT!r}); {code}"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def test_without_the_interpreter_s_c_code_the_package_does_it() -> None:
    asked = (
        "from tfdeploy.agent import json_text; print(json_text.loads(json_text.encode({'a': [1]})))"
    )
    assert said_by(f"sys.modules['_json'] = None; {asked}") == "{'a': [1]}\n"


@pytest.mark.parametrize("verbs", [(), ("lock", "release.store", "release.verbs")])
def test_a_session_that_syncs_loads_no_regular_expressions(verbs: tuple[str, ...]) -> None:
    names = ", ".join(f"tfdeploy.agent.serve.{name}" for name in ("server", *verbs))
    slow = "{'re', 'enum', 'json', 'logging', 'shutil'}"
    assert said_by(f"import {names}; print(*sorted({slow} & set(sys.modules)))") == "\n"
