"""The first bytes of a file, never through a link."""

from __future__ import annotations

import os
import stat

from tfdeploy.agent.annotations import Optional, Tuple
from tfdeploy.agent.host import file_sum


def read(path: str, length: int) -> Optional[Tuple[bytes, int, int]]:
    """(its first `length` bytes, mtime_ns, mode). None: no file, shorter than that, or a disk that gives errors."""
    descriptor = file_sum.open_file(path)
    if descriptor is None:
        return None
    try:
        about = os.fstat(descriptor)
        if about.st_size < length:
            return None
        parts, left = [], length
        while left > 0:
            part = os.read(descriptor, left)
            if not part:
                return None
            parts.append(part)
            left -= len(part)
        return b"".join(parts), about.st_mtime_ns, stat.S_IMODE(about.st_mode)
    except OSError:
        return None
    finally:
        os.close(descriptor)
