"""The agent as one zip: the same bytes for the same source, named by the hash of its content.

It holds what runs on hosts (agent, runtime, errors) and a `__main__.py`. It is built in memory, at
most once per process, and only where a host does not have that name yet.
"""

from __future__ import annotations

import hashlib
import io
import threading
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import tfdeploy

_MAIN = b"""import sys

from tfdeploy.agent.main import main

sys.exit(main(sys.argv[1:]))
"""


_LOCK = threading.Lock()  # all hosts ask at once: one thread builds it for all


def agent_name() -> str:
    """Return 32 hex digits: equal for equal content."""
    with _LOCK:
        return _name()


def agent_zip() -> bytes:
    """Return the bytes of the zip, for a host that does not have it."""
    with _LOCK:
        return _packed()


def name_of(members: dict[str, bytes]) -> str:
    """Pure; the host computes the same, see agent/ownership.py. Lengths are hashed too, so that two
    contents never collide."""
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(members):
        digest.update(f"{name}\0{len(members[name])}\0".encode() + members[name])
    return digest.hexdigest()


def pack(members: dict[str, bytes]) -> bytes:
    """Pure: the same members give the same bytes."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for name in sorted(members):
            facts = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            facts.compress_type = zipfile.ZIP_DEFLATED
            facts.external_attr = 0o600 << 16
            archive.writestr(facts, members[name])
    return packed.getvalue()


@cache
def _name() -> str:
    return name_of(_agent())


@cache
def _packed() -> bytes:
    return pack(_agent())


@cache
def _agent() -> dict[str, bytes]:
    return {"__main__.py": _MAIN, **dict(_members(Path(tfdeploy.__file__).parent))}


def _members(package: Path) -> Iterator[tuple[str, bytes]]:
    files = [package / "__init__.py", package / "errors.py"]
    for folder in ("agent", "runtime"):
        files += sorted((package / folder).rglob("*.py"))
    for file in files:
        yield "tfdeploy/" + file.relative_to(package).as_posix(), file.read_bytes()
