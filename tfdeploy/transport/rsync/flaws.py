"""Whether the rsync of this machine has known holes, through which a host can attack this
machine."""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import lru_cache
from pathlib import Path

MENDED = (3, 5, 0)  # the newest known holes are closed from it on; looked up on 2026-11-24
_NAMED = b"CVE-2026-70458"  # of them, the one by which a host writes to memory here
_CHANGELOGS = ("changelog.Debian.gz", "changelog.gz")
_DOCS = Path("/usr/share/doc/rsync")
_QUERY_S = 10.0


@lru_cache(maxsize=1)
def describe_flaws() -> tuple[str, str] | None:
    """(what is wrong and why, what to do) in words; None where nothing is."""
    shown = version_of(_output("rsync", "--version"))
    if shown is None or shown >= MENDED or _mended_by_distribution():
        return None
    number = ".".join(map(str, shown))
    return (
        f"rsync {number} on this machine is older than {'.'.join(map(str, MENDED))}:"
        " a hostile host can use its holes (CVE-2026-70458 and others)"
        " against this machine, unless the distribution has mended it, of which nothing is found "
        "here",
        "update the package rsync",
    )


def version_of(text: bytes) -> tuple[int, int, int] | None:
    match = re.search(rb"rsync\s+version\s+v?(\d+)\.(\d+)(?:\.(\d+))?", text)
    return (int(match[1]), int(match[2]), int(match[3] or 0)) if match else None


def _mended_by_distribution() -> bool:
    """A distribution mends an old version in place: its changelog says so, and only for the rsync
    of its package."""
    if shutil.which("rsync") not in ("/usr/bin/rsync", "/bin/rsync"):
        return False
    return any(_NAMED in _unpacked(_DOCS / name) for name in _CHANGELOGS) or _NAMED in _output(
        "rpm", "-q", "--changelog", "rsync"
    )


def _unpacked(path: Path) -> bytes:
    import gzip

    try:
        return gzip.decompress(path.read_bytes())
    except (OSError, EOFError, ValueError):
        return b""


def _output(*argv: str) -> bytes:
    try:
        return subprocess.run(argv, capture_output=True, timeout=_QUERY_S, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return b""
