"""Test the texts that describe times, stalled tasks and errors."""

from __future__ import annotations

import pytest

from tfdeploy.model.text.words import short_error, stall_words


@pytest.mark.parametrize(
    ("text", "short"),
    [
        (
            "tensorflow.python.framework.errors_impl.ResourceExhaustedError: OOM when",
            "ResourceExhaustedError: OOM when",
        ),
        ("mylib.errors.Bad", "Bad"),
        ("ValueError: a.b.C: no", "ValueError: a.b.C: no"),
        ("see www.example.org: it says", "see www.example.org: it says"),
        ("a.b.c: no class", "a.b.c: no class"),
        ("", ""),
    ],
)
def test_error_is_shown_without_modules(text: str, short: str) -> None:
    assert short_error(text) == short


@pytest.mark.parametrize(
    ("seconds", "words"), [(5, "5 s"), (99.4, "99 s"), (300, "5 min"), (7200, "2.0 h"), (-3, "0 s")]
)
def test_start_time_or_duration(seconds: float, words: str) -> None:
    assert stall_words("silent", 1000.0, now=1000.0 + seconds) == f"silent (for {words})"
    assert stall_words("silent", 1000.0) == "silent (since 1970-01-01T00:16:40Z)"
    assert stall_words("silent", None, last_known=True) == "when last heard of, stalled: silent"
