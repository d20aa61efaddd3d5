"""Test how a plan is written to a file. A text that occurs several times in the plan is stored only
once. Reading the file restores the plan exactly.
"""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdeploy.agent import wire
from tfdeploy.model.plan_files import pack_value

TEXTS = ("n1:2222,n2:2222,n3:2222,n4:2222,n5:2222,n6:2222,n7:2222,n8:2222,n9:2222", "a" * 64)
pieces = st.lists(st.one_of(st.sampled_from(TEXTS), st.text(max_size=80)), max_size=5)


@given(pieces)
def test_text_is_restored_exactly(parts: list[str]) -> None:
    word = "".join(parts)
    packed = json.loads(json.dumps(pack_value(word, TEXTS)))
    assert wire.resolve_word(packed, list(TEXTS)) == word


def test_repeated_text_is_stored_once() -> None:
    assert pack_value(f"--hosts={TEXTS[0]}", TEXTS) == ["--hosts=", 0]
    assert pack_value(f"{TEXTS[1]};{TEXTS[0]}!", TEXTS) == [1, ";", 0, "!"]
    assert pack_value("--hosts=n1:2222", TEXTS) == "--hosts=n1:2222"


@pytest.mark.parametrize("word", [None, 3, {"a": 1}, [None], ["a", 2], [["a"]], [1.5]])
def test_invalid_text_is_refused(word: object) -> None:
    with pytest.raises(ValueError, match="not a valid argument or variable of a plan"):
        wire.resolve_word(word, list(TEXTS))
