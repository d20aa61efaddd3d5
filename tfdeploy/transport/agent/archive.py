"""Pack the files of the agent (the program that runs on hosts), and name them by their hash.

The files are `tfdeploy/agent`, `tfdeploy/runtime`, `tfdeploy/__init__.py`, `tfdeploy/errors.py` and
a `__main__.py`. Equal sources give equal bytes. The files are read and packed at most once per
process, and packed only if a host lacks the agent.
"""

from __future__ import annotations

import hashlib
import os
import threading
import zlib
from collections.abc import Iterator
from functools import cache
from itertools import chain

import tfdeploy

_MAIN = b"""import sys

from tfdeploy.agent.main import main

sys.exit(main(sys.argv[1:]))
"""


# Threads of several hosts may need the files at the same time. With this lock, only one of them
# reads and packs the files.
_LOCK = threading.Lock()


def agent_name() -> str:
    """Return the agent's name: 32 hex digits, a hash of its files."""
    with _LOCK:
        return _agent_name()


def agent_bytes() -> int:
    """Return the total size of the agent's files."""
    return sum(len(content) for _, content in agent_files())


def packed_agent() -> bytes:
    """Return the agent's files, joined by `join_files` and compressed by zlib."""
    with _LOCK:
        return _packed_agent()


def join_files(content_by_path: dict[str, bytes]) -> bytes:
    """Join files into one byte string. Each file is: path, NUL, length, NUL, content.

    The files are sorted by path. Equal files give equal bytes, and different files give different
    bytes.
    """
    parts = []
    for path in sorted(content_by_path):
        parts += [f"{path}\0{len(content_by_path[path])}\0".encode(), content_by_path[path]]
    return b"".join(parts)


def hash_joined_files(joined_files: bytes) -> str:
    """Return the name of an agent with these files.

    The host computes the same name from the installed files, see agent/ownership.py.
    """
    return hashlib.blake2b(joined_files, digest_size=16).hexdigest()


def agent_files() -> Iterator[tuple[str, bytes]]:
    """Yield the path and content of each file of the agent."""
    yield "__main__.py", _MAIN
    package = os.path.dirname(tfdeploy.__file__)
    paths = ["__init__.py", "errors.py"]
    # With pathlib, finding and reading the files would take 25 ms instead of 4, and the first
    # connection of a process waits for it.
    for folder, _, names in chain(*(os.walk(f"{package}/{each}") for each in ("agent", "runtime"))):
        inner = folder[len(package) + 1 :]
        paths += [f"{inner}/{name}" for name in names if name.endswith(".py")]
    for path in paths:
        with open(f"{package}/{path}", "rb", buffering=0) as file:  # noqa: PTH123 - see above
            yield f"tfdeploy/{path}", file.read()


@cache
def _joined_agent_files() -> bytes:
    return join_files(dict(agent_files()))


@cache
def _agent_name() -> str:
    return hash_joined_files(_joined_agent_files())


@cache
def _packed_agent() -> bytes:
    # Level 3 takes half the time of level 6, and its result is 12 % larger.
    return zlib.compress(_joined_agent_files(), 3)
