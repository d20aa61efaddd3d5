"""Test output as CSV: a CSV reader gets each value back from its own cell.

Texts from programs and hosts are written so that a spreadsheet does not evaluate them as formulas.
"""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdeploy.model.manifest import is_written_by_tfdeploy
from tfdeploy.model.report.run_report import BEFORE
from tfdeploy.ui.csv_text import csv_text
from tfdeploy.ui.report.page import html_document

FORMULAS = ("=", "+", "-", "@")
TEXTS = st.text(st.sampled_from('a;,=+-@" \n\t\r\x1b') | st.characters(codec="utf-8"), max_size=12)


def read(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text, newline=""), strict=True))


def read_at_semicolons(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text, newline=""), delimiter=";"))


def test_numbers_and_texts_and_none() -> None:
    text = csv_text(
        ["time", "loss"],
        [["a", 0.25], ["b", None], ["", 3.0], ["c", -1e-7], ["d", 1e300], ["e", 12]],
    )
    assert (
        text
        == '"time","loss"\r\n"a",0.25\r\n"b",\r\n"",3\r\n"c",-1e-07\r\n"d",1e+300\r\n"e",12\r\n'
    )


@pytest.mark.parametrize(
    ("was", "cell"),
    [
        ("a,b", "a,b"),
        ('say "x"', 'say "x"'),
        ("two\nlines", "two lines"),
        ("bar\r=1", "'=1"),
        ("=1+1", "'=1+1"),
        ("+1", "'+1"),
        ("-1", "'-1"),
        ("@SUM(A1)", "'@SUM(A1)"),
        (" =1", "' =1"),
        ('"=1', "'\"=1"),
        ("\uff1d1", "'\uff1d1"),
        ("\x1b[2J=cmd|' /C calc'!A0", "'=cmd|' /C calc'!A0"),
        ("a;=1; b", "a;'=1; b"),
        ('a; "-1', "a;' \"-1"),
    ],
)
def test_text_is_one_cell_and_no_formula(was: str, cell: str) -> None:
    (header,), (row,) = read(csv_text([was], [[was]]))
    assert header == row == cell


@pytest.mark.fault("59 a host whose metrics have names that a spreadsheet would compute")
@given(st.lists(st.lists(TEXTS | st.floats(-1e308, 1e308) | st.none(), max_size=4), max_size=4))
def test_any_text_of_host_is_cells_without_formulas(
    rows: list[list[str | float | None]],
) -> None:
    text = csv_text(["a", "b"], [["time", *row] for row in rows])
    for line in read_at_semicolons(text):
        assert not any(cell.lstrip(' "').startswith(FORMULAS) for cell in line)
    for given_row, (first, *row) in zip(rows, read(text)[1:], strict=True):
        assert (first, len(row)) == ("time", len(given_row))
        for value, cell in zip(given_row, row, strict=True):
            if isinstance(value, str):
                assert not cell.lstrip(' "').startswith(FORMULAS) and cell.isprintable()
            else:
                assert cell == "" if value is None else float(cell) == value


def test_csv_and_html_files_of_tfdeploy_are_recognised() -> None:
    assert is_written_by_tfdeploy(csv_text(BEFORE, []).encode()) and is_written_by_tfdeploy(
        html_document("a", "b").encode()
    )
    assert not is_written_by_tfdeploy(
        csv_text(BEFORE[1:], []).encode()
    ) and not is_written_by_tfdeploy(b"")
