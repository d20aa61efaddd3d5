"""Stores the fencing number of a job's lock on a host. The number rises each time the lock is
acquired, and stays when the session ends.

A lock ends with its session. If a session breaks, tfdeploy continues in a new session, and the
number shows whether another operator has acquired the lock in between (lock/verbs.py). Reads and
writes one small file beside the locks.
"""

from __future__ import annotations

import os
import time

from tfdeploy.agent.annotations import TYPE_CHECKING
from tfdeploy.agent.host.atomic import read_json, write_json
from tfdeploy.agent.host.private_folder import make_private_folder

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Fence, LockHolder, Unchecked


def advance_fencing_number(lock_path: str, holder: LockHolder) -> None:
    """Write a new number for the holder that has just acquired the lock. The number is at least the
    current time in milliseconds. So no number is used twice, even if the file that stores the
    number was lost."""
    make_private_folder(os.path.dirname(fencing_number_path(lock_path)))
    fence: Fence = {
        **holder,
        "number": max(current_fencing_number(lock_path) + 1, int(time.time() * 1000)),
    }
    write_json(fencing_number_path(lock_path), fence, durable=True)


def current_fencing_number(lock_path: str) -> int:
    """Return the fencing number that was written when the lock was last acquired. Return 0 if the
    lock was never acquired."""
    number = (read_json(fencing_number_path(lock_path)) or {}).get("number")
    return number if isinstance(number, int) else 0


def last_holder(lock_path: str) -> LockHolder:
    """Return the last holder, as the call `lock` gave it: user, machine, pid, time, operation."""
    return parse_holder(read_json(fencing_number_path(lock_path)) or {})


def parse_holder(fields: Unchecked) -> LockHolder:
    """Return the holder of a lock, from the fields of a lock file, of a fencing file or of a
    request. Lengths are not checked here: the side that shows the holder checks them."""
    names = ["user", "machine", "pid", "time", "operation"]
    if isinstance(fields.get("of_host"), str):
        names.append("of_host")
    holder: LockHolder = {name: fields[name] for name in names if name in fields}  # type: ignore[assignment]
    return holder


def fencing_number_path(lock_path: str) -> str:
    """Return the path of the file that stores the fencing number of that lock."""
    folder, name = os.path.split(lock_path)
    return os.path.join(os.path.dirname(folder), "fences", name)
