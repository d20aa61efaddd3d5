"""Test that tfdeploy finds secret values in files that would be sent to hosts, and that no error
shows such a value.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.files.code_tree import put
from tfdeploy.model.job import Secret
from tfdeploy.tree import read_tree
from tfdeploy.tree.key_blocks import SEARCHED_BYTES
from tfdeploy.tree.secret_search import FoundSecret, find_secret_value

SECRET_VALUE = "c4nary-0f-a-secret"


@pytest.mark.parametrize(
    "text, value, line",
    [
        (f"HF_TOKEN={SECRET_VALUE}\n", SECRET_VALUE, 1),
        (f"a\nb\n  {SECRET_VALUE}", f" {SECRET_VALUE}\n", 3),
        (json.dumps({"key": 'two\nlines "é"'}), 'two\nlines "é"', 1),
        (json.dumps({"key": 'two\nlines "é"'}, ensure_ascii=False), 'two\nlines "é"', 1),
        (SECRET_VALUE + "x" * (SEARCHED_BYTES - len(SECRET_VALUE)), SECRET_VALUE, 1),
    ],
)
def test_file_with_value_is_found_with_line(
    tmp_path: Path, text: str, value: str, line: int
) -> None:
    put(tmp_path, "a.py", "x")
    put(tmp_path, "lib/.env", text)
    secrets = {"OTHER": Secret("something else"), "TOKEN": Secret(value)}
    assert find_secret_value(read_tree(tmp_path), secrets) == FoundSecret("lib/.env", line, "TOKEN")


@pytest.mark.parametrize(
    "text, value",
    [
        ("short7!", "short7!"),
        (SECRET_VALUE[:-1], SECRET_VALUE),
        (SECRET_VALUE + "x" * SEARCHED_BYTES, SECRET_VALUE),
    ],
)
def test_short_values_and_other_texts_and_large_files_are_ignored(
    tmp_path: Path, text: str, value: str
) -> None:
    put(tmp_path, "a.py", text)
    assert find_secret_value(read_tree(tmp_path), {"TOKEN": Secret(value)}) is None


def test_missing_file_is_skipped(tmp_path: Path) -> None:
    put(tmp_path, "a.py", SECRET_VALUE)
    put(tmp_path, "b.py", "x")
    manifest = read_tree(tmp_path)
    (tmp_path / "a.py").unlink()
    assert find_secret_value(manifest, {"TOKEN": Secret(SECRET_VALUE)}) is None
