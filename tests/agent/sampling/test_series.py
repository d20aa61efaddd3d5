"""Test how the samples of a run (measurements of its tasks and hosts) are stored on disk: which of
them, for how long, and in how many bytes.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from tfdeploy.agent.sampling import series
from tfdeploy.agent.sampling.series import Series, read_rows, thin_by_age


def times(rows: list[dict[str, float]], now: float) -> list[float]:
    return [now - row["time"] for row in rows]


def test_the_last_hour_stays_and_older_ones_are_halved_again_and_again() -> None:
    now = 1e9
    rows: list[dict[str, float]] = []
    for second in range(0, 8 * 3600, 10):
        rows.append({"time": now + second})
        if second % 3600 == 0:
            rows = thin_by_age(rows, now + second, 10.0)
    ages = times(thin_by_age(rows, now + 8 * 3600, 10.0), now + 8 * 3600)
    within = [
        sum(low < age <= high for age in ages)
        for low, high in ((0, 3600), (3600, 7200), (7200, 14400), (14400, 28800))
    ]
    assert within == pytest.approx([360, 180, 180, 180], abs=8)
    assert max(a - b for a, b in itertools.pairwise(ages)) <= 2.5 * 80


def test_a_week_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series, "THIN_AFTER", 2000)
    one = Series(str(tmp_path / "samples"), 10.0)
    for number in range(0, 7 * 8640):
        one.add(
            {
                "time": 1e9 + 10 * number,
                "cpu": 1.234,
                "memory": 1 << 32,
                "printed": {"loss": 0.123456, "step": number},
            }
        )
    assert (tmp_path / "samples").stat().st_size <= series.MOST_BYTES
    rows = read_rows(str(tmp_path / "samples"))
    assert rows[0]["time"] <= 1e9 + 2 * 86400 and rows[-1]["time"] == 1e9 + 10 * (7 * 8640 - 1)


def test_large_samples_are_thinned_to_the_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(series, "MOST_BYTES", 20_000)
    one = Series(str(tmp_path / "samples"), 10.0)
    for number in range(300):
        one.add(
            {"time": 1e9 + 10 * number, "printed": {f"metric{each}": 1.5 for each in range(32)}}
        )
    assert (tmp_path / "samples").stat().st_size <= 20_000
    assert read_rows(str(tmp_path / "samples"))[-1]["time"] == 1e9 + 2990


def test_lines_that_are_no_samples_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "samples").write_bytes(
        b'{"time": 1}\nnonsense\n[1]\n{"time": "x"}\n{"cpu": 1}\n\xff\n{"time": 2}\n{"time": 3'
    )
    assert [row["time"] for row in read_rows(str(tmp_path / "samples"))] == [1, 2]
    assert read_rows(str(tmp_path / "none")) == []


def test_a_full_disk_or_no_folder_ends_nothing(tmp_path: Path) -> None:
    Series(str(tmp_path / "gone" / "samples"), 10.0).add({"time": 1.0})
    assert not (tmp_path / "gone").exists()
