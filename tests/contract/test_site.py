"""Test that the documentation builds without a warning, and that generated pages are current. Test
also that the navigation, the index and llms.txt have the same pages in the same order.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import llms_txt
import reference_pages

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
BUILD_S = 120
_SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
_LINK = re.compile(r"\]\(([^)\s#]+)[^)]*\)")


def navigation() -> list[str]:
    return [path for _, pages in llms_txt.sections() for _, path in pages]


def test_navigation_has_every_page_once() -> None:
    pages = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))
    assert sorted(["README.md", *navigation()]) == pages, "the navigation is in mkdocs.yml"


def test_index_has_order_of_navigation() -> None:
    hint = 'docs/README.md must have the sections and pages of "nav" in mkdocs.yml, in that order'
    assert list(llms_txt.purposes()) == navigation(), hint
    index = llms_txt.INDEX.read_text(encoding="utf-8")
    assert _SECTION.findall(index) == [title for title, _ in llms_txt.sections()], hint


def test_llms_txt_is_current() -> None:
    assert llms_txt.FILE.read_text(encoding="utf-8") == llms_txt.text(), f"run {llms_txt.RENEW}"


@pytest.mark.parametrize(("name", "text"), reference_pages.pages().items())
def test_reference_page_is_current(name: str, text: str) -> None:
    page = reference_pages.FOLDER / name
    assert page.exists() and page.read_text(encoding="utf-8") == text, (
        f"run {reference_pages.RENEW}"
    )


def test_reference_folder_has_only_generated_pages() -> None:
    names = {path.name for path in reference_pages.FOLDER.iterdir()}
    assert names == {*reference_pages.pages()}, f"{reference_pages.RENEW} writes these pages alone"


@pytest.mark.parametrize("path", ["README.md", *navigation()])
def test_no_link_leaves_site(path: str) -> None:
    page = DOCS / path
    for link in _LINK.findall(page.read_text(encoding="utf-8")):
        target = (page.parent / link).resolve()
        assert "://" in link or target.is_relative_to(DOCS), (
            f"docs/{path} links to {link}, which the site lacks: write `{target.name}`"
        )


@pytest.mark.needs("zensical")
def test_site_builds_without_warning(tmp_path: Path) -> None:
    # zensical writes a cache beside its configuration, so the test builds the site from a copy.
    shutil.copytree(DOCS, tmp_path / "docs")
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=BUILD_S,
        check=False,
    )
    assert done.returncode == 0 and "Warning" not in done.stdout, done.stdout
    for path in navigation():
        assert (tmp_path / "build/site" / path.removesuffix(".md") / "index.html").exists()
