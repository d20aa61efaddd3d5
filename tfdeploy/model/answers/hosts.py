"""Define what a host reports about itself: its versions and paths (`Hello`), its clock, and the
lock of a job. The facts of `probe` are in model/facts.py."""

from __future__ import annotations

from typing import TypedDict

from tfdeploy.model.typed import AbsolutePath, Answer, Count, EmptyAnswer, Line, Seconds, Verb


class Hello(Answer):
    """The first frame of a session: see agent/serve/server.py."""

    version: Line
    agent: Line
    home: Line
    user: Line
    workdir: AbsolutePath
    boot_id: Line
    hostname: Line
    python: Line
    python_version: Line
    clock: Seconds  # UTC seconds by the host's clock
    ssh_connection: Line | None
    pid: Count


class Clock(Answer):
    """`clock`: UTC seconds."""

    clock: Seconds


class LockHolder(TypedDict):
    """Who acquires a lock. Other operators see this while the lock is held."""

    user: str
    machine: str
    pid: int
    time: float  # UTC seconds


class LockAcquired(Answer):
    """`fence`: the fencing number of this lock, which fenced verbs check."""

    held: bool
    fence: Count


PING = Verb("ping", Clock)
LOCK = Verb("lock", LockAcquired)
UNLOCK = Verb("unlock", EmptyAnswer)
