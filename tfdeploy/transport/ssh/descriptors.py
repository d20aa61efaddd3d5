"""Count the free file descriptors of this process.

A session needs one descriptor. A host that is being dialled needs PER_DIAL more.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource

from tfdeploy.errors import Refused

ENOUGH = 1 << 14  # most descriptors that tfdeploy asks for
PER_DIAL = 4  # descriptors of a host that is being dialled: three sockets and the ssh-agent
RESERVE = 8  # kept for reading files and resolving names


def raise_limit() -> None:
    """Raise the soft limit to the hard limit, but at most to ENOUGH."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = ENOUGH if hard == resource.RLIM_INFINITY else min(hard, ENOUGH)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def free() -> int:
    """Return how many descriptors may still be opened, without RESERVE."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        return ENOUGH
    try:
        used = len(os.listdir("/dev/fd"))
    except OSError:
        used = RESERVE
    return max(0, limit - used - RESERVE)


def limit_reached(error: BaseException) -> Refused | None:
    """Return the error for the operator if `error` means too many open files, else None."""
    if not isinstance(error, OSError) or error.errno not in (errno.EMFILE, errno.ENFILE):
        return None
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return Refused(
        f"this machine lets a process open {limit} files, too few for so many hosts at once",
        where="this machine",
        next="ulimit -n 1024, or fewer hosts with --limit",
    )
