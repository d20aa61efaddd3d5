"""Test that no row in a host's listing of a folder can name a path outside the destination
folder.
"""

from __future__ import annotations

import posixpath
import time
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdeploy.model.answers import files
from tfdeploy.model.answers.files import (
    FoundFile,
    FoundFiles,
    link_stays_inside,
    newest_mtimes_ns,
    validate_listing,
)
from tfdeploy.text.typed import convert_untrusted


def check_rows(rows: list[Any]) -> tuple[FoundFile, ...]:
    return validate_listing(
        entry for row in rows for entry in convert_untrusted({"rows": [row]}, FoundFiles).rows
    )


def test_rows_are_sorted_by_path() -> None:
    assert check_rows([["b", 1, 2, None], ["a/c", 0, 0, "b"]]) == (
        FoundFile("a/c", 0, 0, "b"),
        FoundFile("b", 1, 2),
    )


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([["../x", 1, 1, None]], "leads out"),
        ([["/etc/passwd", 1, 1, None]], "leads out"),
        ([["a//b", 1, 1, None]], "leads out"),
        ([["a/./b", 1, 1, None]], "leads out"),
        ([["", 1, 1, None]], "leads out"),
        ([["a\0b", 1, 1, None]], "leads out"),
        ([["x" * 5000, 1, 1, None]], "leads out"),
        ([["a", -1, 1, None]], ">= 0"),
        ([["a", True, 1, None]], "got `bool`"),
        ([["a", 1.5, 1, None]], "got `float`"),
        ([["a", 1, 1 << 70, None]], "<= 9"),
        ([["a", 1, 1, 5]], "got `int`"),
        ([["a", 1]], "length"),
        (["garbage"], "got `str`"),
        ([None], "got `null`"),
        ([["a", 1, 1, None], ["a", 1, 1, None]], "twice"),
        ([["a", 0, 1, "/tmp"], ["a/b", 1, 1, None]], "not a folder"),
        ([["a/b/c/d", 1, 1, None], ["a-b", 1, 1, None], ["a/b", 1, 1, None]], "not a folder"),
    ],
)
def test_invalid_rows_are_refused(rows: list[Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        check_rows(rows)


def test_endless_listing_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MOST_FILES", 10)
    with pytest.raises(ValueError, match="more than 10"):
        validate_listing(FoundFile(f"f{number}", 1, 1) for number in count())


def test_deep_paths_are_checked_quickly() -> None:
    files = [FoundFile(f"{number:04}/" + "a/" * 2000 + "b", 1, 1) for number in range(4000)]
    began = time.process_time()
    assert len(validate_listing(files)) == 4000
    # An older version, which looked up each component of a path, took 5 s here.
    assert time.process_time() - began < 3.0


@pytest.mark.parametrize(
    ("path", "target", "inside"),
    [
        ("link", "file", True),
        ("a/link", "../file", True),
        ("a/link", "../../file", False),
        ("link", "/etc/passwd", False),
        ("link", "..", False),
        ("a/link", "..", False),
        ("link", "d/..", False),
        ("a/link", "../d/../../x", False),
        ("link", "", False),
    ],
)
def test_link_is_inside_by_its_text_alone(path: str, target: str, inside: bool) -> None:
    assert link_stays_inside(FoundFile(path, 0, 0, target)) is inside


@given(st.lists(st.sampled_from(["a", "b", "..", ".", ""]), max_size=5), st.integers(0, 3))
def test_no_accepted_link_leads_outside(words: list[str], depth: int) -> None:
    path = "/".join(["d"] * depth + ["link"])
    if link_stays_inside(FoundFile(path, 0, 0, "/".join(words))):
        end = posixpath.normpath(posixpath.join(posixpath.dirname(path), "/".join(words)))
        assert not end.startswith(("..", "/"))


def test_newer_checkpoint_record_takes_precedence_over_newer_files() -> None:
    old = (FoundFile("c/checkpoint", 1, 10), FoundFile("c/log", 1, 99))
    new = (FoundFile("c/checkpoint", 1, 11), FoundFile("c/model", 1, 5))
    assert (
        newest_mtimes_ns(new)
        > newest_mtimes_ns(old)
        > newest_mtimes_ns((FoundFile("c/log", 1, 100),))
        > newest_mtimes_ns(())
    )
