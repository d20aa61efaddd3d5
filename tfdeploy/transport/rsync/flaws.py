"""Check whether the rsync of this machine has known vulnerabilities that a host can exploit."""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import lru_cache
from pathlib import Path

# Checked on 2026-11-24: this is the first version without the known vulnerabilities.
MENDED = (3, 5, 0)
# Through this vulnerability, a host can write to the memory of rsync on this machine.
_NAMED = b"CVE-2026-70458"
_CHANGELOGS = ("changelog.Debian.gz", "changelog.gz")
_DOCS = Path("/usr/share/doc/rsync")
_QUERY_S = 10.0  # seconds after which a program that this module runs is killed


@lru_cache(maxsize=1)
def describe_flaws() -> tuple[str, str] | None:
    """Return (what is wrong and why, what to do), or None if rsync has no known vulnerability."""
    installed = version_of(_output("rsync", "--version"))
    if installed is None or installed >= MENDED or _is_fixed_by_distribution():
        return None
    number = ".".join(map(str, installed))
    return (
        f"rsync {number} on this machine is older than {'.'.join(map(str, MENDED))}, and its "
        "package lists no security fix: a hostile host can use known vulnerabilities "
        "(CVE-2026-70458 and others) against this machine",
        "update the package rsync",
    )


def version_of(text: bytes) -> tuple[int, int, int] | None:
    """Return the version in the output of `rsync --version`, or None if there is none."""
    match = re.search(rb"rsync\s+version\s+v?(\d+)\.(\d+)(?:\.(\d+))?", text)
    return (int(match[1]), int(match[2]), int(match[3] or 0)) if match else None


def _is_fixed_by_distribution() -> bool:
    """True if the distribution has fixed the vulnerabilities of the installed version.

    A distribution fixes an old version without a new version number, and names the fix in the
    package's changelog. The changelog counts only if rsync is installed from the package.
    """
    if shutil.which("rsync") not in ("/usr/bin/rsync", "/bin/rsync"):
        return False
    return any(_NAMED in _read_gzip(_DOCS / name) for name in _CHANGELOGS) or _NAMED in _output(
        "rpm", "-q", "--changelog", "rsync"
    )


def _read_gzip(path: Path) -> bytes:
    """Return the uncompressed content of a gzip file, or b"" if it cannot be read."""
    import gzip

    try:
        return gzip.decompress(path.read_bytes())
    except (OSError, EOFError, ValueError):
        return b""


def _output(*argv: str) -> bytes:
    """Return the output of a command, or b"" if it cannot be run."""
    try:
        return subprocess.run(argv, capture_output=True, timeout=_QUERY_S, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return b""
