"""Pack the agent (the program that runs on hosts) into one zip, named by the hash of its content.

The zip holds `tfdeploy/agent`, `tfdeploy/runtime`, `tfdeploy/errors.py` and a `__main__.py`. Equal
sources give equal bytes. The zip is built in memory, at most once per process, and only if a host
lacks it.
"""

from __future__ import annotations

import hashlib
import io
import threading
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import tfdeploy

_MAIN = b"""import sys

from tfdeploy.agent.main import main

sys.exit(main(sys.argv[1:]))
"""


# The threads of several hosts may need the zip at the same time. This lock lets only one build it.
_LOCK = threading.Lock()


def agent_name() -> str:
    """Return the zip's name: 32 hex digits, a hash of its content."""
    with _LOCK:
        return _agent_name()


def agent_zip() -> bytes:
    """Return the bytes of the zip."""
    with _LOCK:
        return _agent_zip()


def name_of(content_by_name: dict[str, bytes]) -> str:
    """Return the name of a zip with these members.

    The host computes the same name, see agent/ownership.py. The length of each member is hashed
    too. Otherwise two zips with different members could have the same name. The function is pure.
    """
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(content_by_name):
        digest.update(f"{name}\0{len(content_by_name[name])}\0".encode() + content_by_name[name])
    return digest.hexdigest()


def pack(content_by_name: dict[str, bytes]) -> bytes:
    """Return a zip of the members. Equal members give equal bytes."""
    import zipfile  # rarely needed, and slow to import

    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for name in sorted(content_by_name):
            member_info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            member_info.compress_type = zipfile.ZIP_DEFLATED
            member_info.external_attr = 0o600 << 16
            archive.writestr(member_info, content_by_name[name])
    return packed.getvalue()


@cache
def _agent_name() -> str:
    return name_of(_agent_members())


@cache
def _agent_zip() -> bytes:
    return pack(_agent_members())


@cache
def _agent_members() -> dict[str, bytes]:
    """Return {path in the zip: content}."""
    return {"__main__.py": _MAIN, **dict(_read_members(Path(tfdeploy.__file__).parent))}


def _read_members(package: Path) -> Iterator[tuple[str, bytes]]:
    files = [package / "__init__.py", package / "errors.py"]
    for folder in ("agent", "runtime"):
        files += sorted((package / folder).rglob("*.py"))
    for file in files:
        yield "tfdeploy/" + file.relative_to(package).as_posix(), file.read_bytes()
