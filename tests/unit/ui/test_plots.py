"""Test how curves are drawn with characters."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.rows import row_text
from tfdeploy.ui.plots import Curve, draw_plot, draw_sparkline
from tfdeploy.ui.tables import cell_width

POINTS = st.lists(st.tuples(st.floats(0, 1e5), st.floats(-1e12, 1e12)), max_size=60).map(sorted)


@pytest.mark.parametrize(
    ("values", "width", "drawn"),
    [
        ([], 8, ""),
        ([1.0], 8, ""),
        ([1.0, 2.0, 3.0], 8, "▁▅█"),
        ([3.0, 2.0, 1.0], 8, "█▅▁"),
        ([0.0, 0.0], 8, "▁▁"),
        ([5.0, 5.0], 8, "▄▄"),
        ([0.0, 0.0, 0.0, 8.0, 8.0, 8.0], 2, "▁█"),
        ([1.0, 2.0], 1, ""),
    ],
)
def test_small_curve(values: list[float], width: int, drawn: str) -> None:
    assert draw_sparkline(values, width) == drawn


def test_only_ascii_is_drawn_without_unicode() -> None:
    assert draw_sparkline([1.0, 2.0, 3.0], 8, unicode=False).isascii()
    rows = draw_plot([Curve("loss", [(0.0, 3.0), (9.0, 1.0)])], 40, 8, unicode=False)
    assert all(row_text(row).isascii() for row in rows)


@given(POINTS, POINTS, st.integers(14, 90), st.integers(0, 20), st.booleans())
def test_plot_has_given_size_for_any_points(
    first_curve: list[tuple[float, float]],
    second_curve: list[tuple[float, float]],
    width: int,
    height: int,
    unicode: bool,
) -> None:
    rows = draw_plot(
        [Curve("a", first_curve), Curve("b", second_curve)], width, height, unicode=unicode
    )
    assert len(rows) == height
    assert all(cell_width(row_text(row)) <= width for row in rows)


def test_axes_show_range() -> None:
    texts = [
        row_text(row) for row in draw_plot([Curve("loss", [(100.0, 3.0), (160.0, 1.0)])], 40, 8)
    ]
    assert texts[0].lstrip().startswith("3│")
    assert texts[-2].lstrip().startswith("1│")
    assert texts[-1].split() == ["0", "s", "1:00"]


def test_axis_of_percent_has_full_range() -> None:
    texts = [
        row_text(row)
        for row in draw_plot([Curve("gpu", [(0.0, 50.0), (1.0, 60.0)])], 40, 8, unit="%")
    ]
    assert texts[0].lstrip().startswith("100%│")
    assert texts[-2].lstrip().startswith("0%│")


@pytest.mark.parametrize("unit", ["%", "bytes", "cores", "/s"])
def test_axis_of_zero_values_has_no_negative_numbers(unit: str) -> None:
    rows = draw_plot([Curve("use", [(0.0, 0.0), (9.0, 0.0)])], 40, 8, unit=unit)
    assert not any("-" in row_text(row) for row in rows)
