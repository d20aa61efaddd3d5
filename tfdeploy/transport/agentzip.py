"""The agent as it travels: one zip, the same bytes for the same source, named by its hash.

It holds what runs on hosts (agent, runtime, errors) and a `__main__.py`. Built in memory, once per process.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import tfdeploy

_MAIN = b"""import sys

from tfdeploy.agent.main import main

sys.exit(main(sys.argv[1:]))
"""


@lru_cache(maxsize=1)
def agent_zip() -> tuple[str, bytes]:
    """(name of its content: 16 hex digits, the zip)."""
    members = dict(_members(Path(tfdeploy.__file__).parent))
    return pack({"__main__.py": _MAIN, **members})


def pack(members: dict[str, bytes]) -> tuple[str, bytes]:
    """Pure: the same members give the same bytes."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for name in sorted(members):
            facts = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            facts.compress_type = zipfile.ZIP_DEFLATED
            facts.external_attr = 0o600 << 16
            archive.writestr(facts, members[name])
    return hashlib.sha256(packed.getvalue()).hexdigest()[:16], packed.getvalue()


def _members(package: Path) -> Iterator[tuple[str, bytes]]:
    files = [package / "__init__.py", package / "errors.py"]
    for folder in ("agent", "runtime"):
        files += sorted((package / folder).rglob("*.py"))
    for file in files:
        yield "tfdeploy/" + file.relative_to(package).as_posix(), file.read_bytes()
