"""Test the texts of errors, stalls and times, and the parser of durations and points in time."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tfdeploy.text.row_values import parse_moment, short_error, stall_words
from tfdeploy.text.units import parse_duration


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


NOW = 1_800_000_000.0
DURATIONS = {
    "20": 20,
    "0": 0,
    "1.5": 1.5,
    "20s": 20,
    "5m": 300,
    "1h30m": 5400,
    "1h 30m": None,
    "2d": 172800,
    "1d2h3m4s5ms": 93784.005,
}
NO_DURATIONS = ("", "h", "1x", "-5m", "1h30", "5m-", "1e3", "٣s", "99999999d", "inf", "nan")
MOMENTS = {
    "1h30m": NOW - 5400,
    "2026-11-22T10:00:00Z": 1795341600.0,
    "2026-11-22t10:00:00z": 1795341600.0,
    "2026-11-22 10:00Z": 1795341600.0,
    "2026-11-22T10:00:00.25+02:00": 1795334400.25,
    "2026-11-22T10:00:00-01:30": 1795347000.0,
    # Midnight in a time zone one hour east of UTC.
    "2026-11-22": 1795305600.0 - 3600,
    "2026-11-22T01:00:00": 1795305600.0,
}
NO_MOMENTS = (
    "yesterday",
    "2026-13-01",
    "2026-11-22T25:00:00Z",
    "2026-11-22T10Z",
    "0001-01-01T00:00:00+23:00x",
    "",
)


@pytest.mark.parametrize(("text", "seconds"), DURATIONS.items())
def test_durations_add_up(text: str, seconds: float | None) -> None:
    if seconds is None:
        with pytest.raises(ValueError, match="is not a duration"):
            parse_duration(text)
    else:
        assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", NO_DURATIONS)
def test_invalid_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration like 20s, 5m, 1h30m"):
        parse_duration(text)


@pytest.fixture
def one_hour_east() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("TZ", "ABC-1")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("one_hour_east")
@pytest.mark.parametrize(("text", "moment"), MOMENTS.items())
def test_points_in_time(text: str, moment: float) -> None:
    assert parse_moment(text, NOW) == moment


@pytest.mark.parametrize("text", NO_MOMENTS)
def test_invalid_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is neither a duration nor a time like"):
        parse_moment(text, NOW)
