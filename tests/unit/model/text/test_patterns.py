"""Regular expressions as a person writes them: compiled without noise, or refused in words."""

from __future__ import annotations

import re

import pytest

from tfdeploy.model.text.patterns import compiled

FAULTS = {
    "an open bracket": "(",
    "too many times": "x{99999999999}",
    "no hex": r"\xg",
    "a megabyte": "a|" * 500_000,
}


@pytest.mark.parametrize("text", FAULTS.values(), ids=FAULTS)
def test_a_fault_is_said(text: str) -> None:
    with pytest.raises(ValueError) as caught:
        compiled(text)
    assert 0 < len(str(caught.value)) < 300


def test_re_warns_nobody() -> None:
    re.purge()
    assert compiled("[[x](y)").search("[y")  # a FutureWarning of re, and warnings are errors here
    assert compiled(rb"\xff").search(b"\xff")
