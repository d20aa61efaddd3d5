"""Renew the checksums (marks) in README.zh.md, the translation of README.md.

    python scripts/translation_marks.py [--check]

Each section of the translation has the checksum of the English section that it translates. If an
English section has changed, first change the translation, then run this script, which writes the
new checksums. With --check, nothing is written, and the exit code is 1 if an English section has
changed.
"""

from __future__ import annotations

import hashlib
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ENGLISH = ROOT / "README.md"
CHINESE = ROOT / "README.zh.md"
RENEW = "python scripts/translation_marks.py"

_START_OF_SECTION = re.compile(r"^(?=## )", re.MULTILINE)
_MARK = re.compile(r"^<!-- README\.md: ([0-9a-f]{8}) -->$", re.MULTILINE)


def sections(page: Path) -> list[str]:
    """Return the text before the first heading of level 2, and each section of that level."""
    return _START_OF_SECTION.split(page.read_text(encoding="utf-8"))


def checksum(section: str) -> str:
    """Return the checksum of an English section. Its translation must contain this checksum."""
    return hashlib.sha256(section.strip().encode()).hexdigest()[:8]


def changed_sections() -> list[str]:
    """Return the first lines of the English sections that have changed since their translation."""
    return [
        english.splitlines()[0]
        for english, chinese in zip(sections(ENGLISH), sections(CHINESE), strict=True)
        if _MARK.findall(chinese) != [checksum(english)]
    ]


def renewed() -> str:
    """Return the text of README.zh.md with the checksums of the current English sections."""
    pairs = zip(sections(ENGLISH), sections(CHINESE), strict=True)
    return "".join(
        _MARK.sub(f"<!-- README.md: {checksum(english)} -->", chinese) for english, chinese in pairs
    )


def main() -> int:
    changed = changed_sections()
    if "--check" in sys.argv[1:]:
        print(f"translate, then type {RENEW}: {', '.join(changed)}" if changed else "current")
        return 1 if changed else 0
    CHINESE.write_text(renewed(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
