"""Test how the code of several runs is compared: which lines are listed as different, and which
reason is given if a comparison is impossible.
"""

from __future__ import annotations

from hashlib import sha256

from tfdeploy.model.manifest import CodeFile
from tfdeploy.model.report.compare import (
    MOST_BYTES,
    MOST_COMPARED_FILES,
    changed_files,
    lines_of_files,
    select_comparable,
)

RUNS = ("one", "two")


def code(**contents: bytes) -> tuple[dict[str, CodeFile], dict[str, bytes]]:
    return {
        name: CodeFile("file", sha256(text).hexdigest(), len(text))
        for name, text in contents.items()
    }, contents


def diff_by_path(
    first: dict[str, bytes], second: dict[str, bytes]
) -> dict[str, tuple[list[str] | None, str | None]]:
    (files1, contents1), (files2, contents2) = code(**first), code(**second)
    return {
        row["path"]: (row["diff"], row["why"])
        for row in lines_of_files(RUNS, (files1, files2), (contents1, contents2))
    }


def test_removed_and_added_lines() -> None:
    changed = diff_by_path(
        {"a": b"x\n-- y\nz\n", "gone": b"g\n", "same": b"s"},
        {"a": b"x\n++ y\nz\n", "new": b"n\n", "same": b"s"},
    )
    assert changed == {
        "a": (["@@ -1,3 +1,3 @@", " x", "--- y", "+++ y", " z"], None),
        "gone": (["@@ -1 +0,0 @@", "-g"], None),
        "new": (["@@ -0,0 +1 @@", "+n"], None),
    }


def test_reasons_for_missing_line_differences() -> None:
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
    assert row["why"] == "it is larger than 256 KiB" and select_comparable(big, ["a"]) == {}
    (row,) = lines_of_files(RUNS, (small, code(a=b"z")[0]), (content, None))
    assert row["why"] == "no host has the release of two any more"


def test_links_are_not_text_and_number_of_files_is_bounded() -> None:
    link = {"l": CodeFile("link", "x", 0)}
    assert changed_files(link, {"l": CodeFile("link", "y", 0)}) == changed_files(link, {}) == []
    many = {f"f{number:04}": CodeFile("file", "s", 1) for number in range(999)}
    assert len(changed_files(many, {})) == MOST_COMPARED_FILES
