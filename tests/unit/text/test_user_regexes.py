"""Test that a regular expression from the user either compiles without a warning or is refused with
an error.
"""

from __future__ import annotations

import re

import pytest

from tfdeploy.text.user_regexes import compile_user_pattern

FAULTS = {
    "an open bracket": "(",
    "too many times": "x{99999999999}",
    "no hex": r"\xg",
    "a megabyte": "a|" * 500_000,
}


@pytest.mark.parametrize("text", FAULTS.values(), ids=FAULTS)
def test_invalid_pattern_is_refused(text: str) -> None:
    with pytest.raises(ValueError) as caught:
        compile_user_pattern(text)
    assert 0 < len(str(caught.value)) < 300


def test_warning_of_re_is_not_shown() -> None:
    re.purge()
    # re emits a FutureWarning for this pattern, and pytest makes warnings errors.
    assert compile_user_pattern("[[x](y)").search("[y")
    assert compile_user_pattern(rb"\xff").search(b"\xff")
