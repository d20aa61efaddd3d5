"""The number of a job's lock on a host: each taking of the lock has a higher one, and it outlives the session.

A lock ends with its session, and the operator may not know: a new session goes on where the old one was. By its number it is
seen whether another operator has taken the lock since (lock.py). Reads and writes one small file beside the locks.
"""

from __future__ import annotations

import os
import time

from tfdeploy.agent.annotations import TYPE_CHECKING
from tfdeploy.agent.host.atomic import read_json, write_json
from tfdeploy.agent.run.workdir import make_private

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Fence, LockHolder, Unchecked


def count(lock_path: str, holder: LockHolder) -> None:
    """A new number, for who has just taken the lock. By the clock, so that none comes twice where the file was lost."""
    make_private(os.path.dirname(beside(lock_path)))
    fence: Fence = {**holder, "number": max(current(lock_path) + 1, int(time.time() * 1000))}
    write_json(beside(lock_path), fence, durable=True)


def current(lock_path: str) -> int:
    """The number of whoever took the lock last; 0: nobody did."""
    number = (read_json(beside(lock_path)) or {}).get("number")
    return number if isinstance(number, int) else 0


def last_taker(lock_path: str) -> LockHolder:
    """As given to `lock`: user, machine, pid, time, operation."""
    return holder_of(read_json(beside(lock_path)) or {})


def holder_of(said: Unchecked) -> LockHolder:
    """What a lock file, a fence or an operator's machine says of who holds a lock. Whoever shows it bounds it."""
    holder: LockHolder = {}
    if "user" in said:
        holder["user"] = said["user"]
    if "machine" in said:
        holder["machine"] = said["machine"]
    if "pid" in said:
        holder["pid"] = said["pid"]
    if "time" in said:
        holder["time"] = said["time"]
    if "operation" in said:
        holder["operation"] = said["operation"]
    if isinstance(said.get("of_host"), str):
        holder["of_host"] = said["of_host"]
    return holder


def beside(lock_path: str) -> str:
    """Where the number of that lock lies."""
    folder, name = os.path.split(lock_path)
    return os.path.join(os.path.dirname(folder), "fences", name)
