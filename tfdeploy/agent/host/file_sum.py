"""Compute the SHA-256 of a file's content. Links are never followed."""

from __future__ import annotations

import os
import stat
import sys

from tfdeploy.agent.annotations import Optional, Tuple

_BLOCK_BYTES = 1 << 20


def open_file(path: str) -> Optional[int]:
    """Open the file for reading and return its descriptor. The caller must close it. Return None if
    the file does not exist or is not a regular file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    return None


def hash_first_bytes(path: str, length: int, *, whole: bool = False) -> Optional[str]:
    """Return the SHA-256 of the first `length` bytes of the file. Return None if the file does not
    exist or is shorter. `whole`: True to return None also if the file is longer."""
    descriptor = open_file(path)
    if descriptor is None:
        return None
    try:
        if whole and os.fstat(descriptor).st_size != length:
            return None
        digest, count = hash_open_file(descriptor, length)
        return digest if count == length else None
    finally:
        os.close(descriptor)


def hash_open_file(descriptor: int, most_bytes: int = sys.maxsize) -> Tuple[str, int]:
    """Return (SHA-256, number of bytes) of an open file, from its current position to its end.
    Stops after `most_bytes`."""
    # Imported here, because hashlib loads libcrypto, which takes 4 ms, and most syncs hash no file.
    import hashlib

    digest, remaining = hashlib.sha256(), most_bytes
    while remaining > 0:
        block = os.read(descriptor, min(remaining, _BLOCK_BYTES))
        if not block:
            break
        digest.update(block)
        remaining -= len(block)
    return digest.hexdigest(), most_bytes - remaining
