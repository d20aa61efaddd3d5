"""Test which lines of the code differ between runs, and which reason is given if the code cannot be
compared.
"""

from __future__ import annotations

from hashlib import sha256

from tfdeploy.model.manifest import CodeFile
from tfdeploy.model.report.code_lines import (
    MOST_BYTES,
    MOST_FILES,
    changed_files,
    lines_of_files,
    wanted,
)

RUNS = ("one", "two")


def code(**contents: bytes) -> tuple[dict[str, CodeFile], dict[str, bytes]]:
    return {
        name: CodeFile("file", sha256(text).hexdigest(), len(text))
        for name, text in contents.items()
    }, contents


def diff_by_path(
    one: dict[str, bytes], two: dict[str, bytes]
) -> dict[str, tuple[list[str] | None, str | None]]:
    (files1, contents1), (files2, contents2) = code(**one), code(**two)
    return {
        row["path"]: (row["diff"], row["why"])
        for row in lines_of_files(RUNS, (files1, files2), (contents1, contents2))
    }


def test_lines_that_went_and_came() -> None:
    changed = diff_by_path(
        {"a": b"x\n-- y\nz\n", "gone": b"g\n", "same": b"s"},
        {"a": b"x\n++ y\nz\n", "new": b"n\n", "same": b"s"},
    )
    assert changed == {
        "a": (["@@ -1,3 +1,3 @@", " x", "--- y", "+++ y", " z"], None),
        "gone": (["@@ -1 +0,0 @@", "-g"], None),
        "new": (["@@ -0,0 +1 @@", "+n"], None),
    }


def test_why_lines_cannot_be_told() -> None:
    changed = diff_by_path(
        {"a": b"\0", "b": b"\xff", "c": b"x\n"}, {"a": b"x", "b": b"y", "c": b"x\r\n"}
    )
    no_text = (None, "it is no text")
    assert changed == {
        "a": no_text,
        "b": no_text,
        "c": (None, "only its mode or its line ends differ"),
    }
    big, _ = code(a=b"x" * (MOST_BYTES + 1))
    small, content = code(a=b"y")
    (row,) = lines_of_files(RUNS, (big, small), ({}, content))
    assert row["why"] == "it is larger than 256 KiB" and wanted(big, ["a"]) == {}
    (row,) = lines_of_files(RUNS, (small, code(a=b"z")[0]), (content, None))
    assert row["why"] == "no host has the release of two any more"


def test_links_are_no_text_and_the_number_of_files_is_bounded() -> None:
    link = {"l": CodeFile("link", "x", 0)}
    assert changed_files(link, {"l": CodeFile("link", "y", 0)}) == changed_files(link, {}) == []
    many = {f"f{number:04}": CodeFile("file", "s", 1) for number in range(999)}
    assert len(changed_files(many, {})) == MOST_FILES
