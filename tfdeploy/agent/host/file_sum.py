"""The sha256 of a file's content, never through a link."""

from __future__ import annotations

import hashlib
import os
import stat

from tfdeploy.agent.annotations import Optional

_BLOCK_BYTES = 1 << 20


def open_file(path: str) -> Optional[int]:
    """A descriptor, which the caller closes. None: no file, or a link, a folder, a pipe."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    return None


def of_first(path: str, length: int, *, whole: bool = False) -> Optional[str]:
    """Of its first `length` bytes. None: no file, or shorter than that; with `whole` also: longer."""
    descriptor = open_file(path)
    if descriptor is None:
        return None
    try:
        if whole and os.fstat(descriptor).st_size != length:
            return None
        digest, left = hashlib.sha256(), length
        while left > 0:
            block = os.read(descriptor, min(left, _BLOCK_BYTES))
            if not block:
                return None
            digest.update(block)
            left -= len(block)
        return digest.hexdigest()
    finally:
        os.close(descriptor)
