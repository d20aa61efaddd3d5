"""Count the file descriptors that this process can still open.

A session needs one descriptor. A host that is being dialled needs PER_DIAL more.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource

from tfdeploy.errors import Refused

ENOUGH = 1 << 14  # tfdeploy asks for at most this many descriptors
PER_DIAL = 4  # three sockets and the ssh-agent, while a host is being dialled
RESERVE = 8  # descriptors for reading files and resolving names


def raise_limit() -> None:
    """Raise the soft limit of open files to the hard limit, but at most to ENOUGH."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted_limit = ENOUGH if hard == resource.RLIM_INFINITY else min(hard, ENOUGH)
    if soft != resource.RLIM_INFINITY and soft < wanted_limit:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted_limit, hard))


def count_free() -> int:
    """Return how many descriptors can still be opened, not counting the RESERVE."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        return ENOUGH
    try:
        used = len(os.listdir("/dev/fd"))
    except OSError:
        used = RESERVE
    return max(0, limit - used - RESERVE)


def descriptor_limit_error(error: BaseException) -> Refused | None:
    """Return an error that says that this process has too many open files. Return None if `error`
    has another cause."""
    if not isinstance(error, OSError) or error.errno not in (errno.EMFILE, errno.ENFILE):
        return None
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return Refused(
        f"this machine lets a process open only {limit} files, too few for so many hosts at once",
        where="this machine",
        next="`ulimit -n 1024`, or choose fewer hosts with --limit",
    )
