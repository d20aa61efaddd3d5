"""The fencing number of a job's lock on a host: it rises each time the lock is taken, and outlives
the session.

A lock ends with its session, which may break without the operator's notice; a new session then goes
on. The number shows whether another operator has taken the lock since (lock.py). Reads and writes
one small file beside the locks.
"""

from __future__ import annotations

import os
import time

from tfdeploy.agent.annotations import TYPE_CHECKING
from tfdeploy.agent.host.atomic import read_json, write_json
from tfdeploy.agent.host.private_folder import make_private

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Fence, LockHolder, Unchecked


def advance(lock_path: str, holder: LockHolder) -> None:
    """Writes a new number, for the holder that has just taken the lock: from the clock, so none
    repeats if the file is lost."""
    make_private(os.path.dirname(path_of(lock_path)))
    fence: Fence = {**holder, "number": max(current(lock_path) + 1, int(time.time() * 1000))}
    write_json(path_of(lock_path), fence, durable=True)


def current(lock_path: str) -> int:
    """The number of the lock as it was last taken; 0: it never was."""
    number = (read_json(path_of(lock_path)) or {}).get("number")
    return number if isinstance(number, int) else 0


def last_taker(lock_path: str) -> LockHolder:
    """As given to `lock`: user, machine, pid, time, operation."""
    return holder_of(read_json(path_of(lock_path)) or {})


def holder_of(fields: Unchecked) -> LockHolder:
    """The holder in a lock file, a fence or a request. Lengths are not checked: the side that shows
    it does that."""
    holder: LockHolder = {}
    if "user" in fields:
        holder["user"] = fields["user"]
    if "machine" in fields:
        holder["machine"] = fields["machine"]
    if "pid" in fields:
        holder["pid"] = fields["pid"]
    if "time" in fields:
        holder["time"] = fields["time"]
    if "operation" in fields:
        holder["operation"] = fields["operation"]
    if isinstance(fields.get("of_host"), str):
        holder["of_host"] = fields["of_host"]
    return holder


def path_of(lock_path: str) -> str:
    """The file with the number of that lock."""
    folder, name = os.path.split(lock_path)
    return os.path.join(os.path.dirname(folder), "fences", name)
