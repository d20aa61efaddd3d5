"""Write llms.txt: the pages of the documentation, in the order of the site's navigation.

    python scripts/llms_txt.py [--check]

Sections and titles come from mkdocs.yml. The purpose of each page comes from docs/README.md. With
--check, nothing is written, and the exit code is 1 if the file is not current.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "llms.txt"
INDEX = ROOT / "docs" / "README.md"
RENEW = "python scripts/llms_txt.py"

_ROW = re.compile(r"^\| (.+) \| \[.*\]\((\S+)\) \|$", re.MULTILINE)
_ITEM = re.compile(r"^- \[(.+)\]\((\S+)\)$", re.MULTILINE)


def site() -> dict[str, Any]:
    """Return the configuration of the site."""
    config: dict[str, Any] = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    return config


def sections() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yield (title, [(title of a page, path)]) for each section of the navigation, without the
    index.

    The pages of a nested section count as pages of the outer section.
    """
    for entry in site()["nav"]:
        for title, inner in entry.items():
            if isinstance(inner, list):
                yield title, list(_pages(inner))


def _pages(entries: list[Any]) -> Iterator[tuple[str, str]]:
    for entry in entries:
        for title, inner in entry.items():
            if isinstance(inner, list):
                yield from _pages(inner)
            else:
                yield title, inner


def purposes() -> dict[str, str]:
    """Return {path of a page: what the page is for}, in the order of docs/README.md."""
    index = INDEX.read_text(encoding="utf-8")
    found = sorted([*_ROW.finditer(index), *_ITEM.finditer(index)], key=lambda each: each.start())
    return {each[2]: each[1] for each in found}


def text() -> str:
    """Return the content of llms.txt. Raises KeyError for a page that docs/README.md lacks."""
    config, purpose_of = site(), purposes()
    lines = [f"# {config['site_name']}", "", f"> {config['site_description']}."]
    for title, pages in sections():
        lines += ["", f"## {title}", ""]
        lines += [f"- [{name}](docs/{path}): {purpose_of[path]}" for name, path in pages]
    return "\n".join(lines) + "\n"


def main() -> int:
    if "--check" in sys.argv[1:]:
        current = FILE.exists() and FILE.read_text(encoding="utf-8") == text()
        print("llms.txt is current" if current else f"llms.txt is not current; type: {RENEW}")
        return 0 if current else 1
    FILE.write_text(text(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
