"""Test that tfdeploy accepts the inventories and job files that the documentation shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from tfdeploy.config import load_inventory, load_job

ROOT = Path(__file__).resolve().parents[2]
# This page is left out: each of its blocks is a single key, generated from config/reference.py.
GENERATED = ROOT / "docs/reference"
# A block may begin with a comment that names its file. If the comment names any other file, such as
# the file of another tool, the test leaves the block out.
OWN_FILES = re.compile(r"# (?:tfdeploy\.yaml|inventories/[\w.-]+)\b")
_BLOCK = re.compile(r"^ *```yaml\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
_NAMED = re.compile(r"# \S+\.ya?ml\b|# ~?/\S+")


def examples() -> list[tuple[str, str]]:
    """Return (page and number, text) of each YAML block that tfdeploy should read."""
    blocks = []
    pages = [page for page in sorted((ROOT / "docs").rglob("*.md")) if page.parent != GENERATED]
    for page in (ROOT / "README.md", *pages):
        for number, text in enumerate(_BLOCK.findall(page.read_text(encoding="utf-8")), 1):
            if OWN_FILES.match(text) or not _NAMED.match(text):
                blocks.append((f"{page.relative_to(ROOT)}:{number}", text))
    return blocks


def is_inventory(text: str) -> bool:
    return bool({"hosts", "defaults"} & set(yaml.safe_load(text)))


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in examples()])
def test_example_is_read(text: str, tmp_path: Path) -> None:
    hint = "correct it, or name the file of another tool in its first line: # tfjob.yaml"
    path = tmp_path / "tfdeploy.yaml"
    path.write_text(text, encoding="utf-8")
    try:
        if is_inventory(text):
            assert load_inventory(path).hosts
        else:
            load_job(path, environ={"HOME": str(tmp_path)})
    except Exception as error:
        raise AssertionError(f"tfdeploy does not read this block: {error}; {hint}") from error


def test_examples_are_found() -> None:
    pages = {name.rpartition(":")[0] for name, _ in examples()}
    assert {"README.md", "docs/modes.md", "docs/data.md"} <= pages
