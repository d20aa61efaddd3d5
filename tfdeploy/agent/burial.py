"""What is left of a task whose supervisor is dead is killed, and its status written. Never for a living supervisor."""

from __future__ import annotations

import os
import time

from tfdeploy.agent import family
from tfdeploy.agent.paths import RunPaths, take_lock


def bury(paths: RunPaths, task: str, outcome: str, reason: str, grace_s: float = 0.0) -> bool:
    """False: its supervisor lives after all, something would not die, or the disk is full (try again)."""
    os.makedirs(paths.task_dir(task), mode=0o700, exist_ok=True)
    lock = take_lock(family.supervisor_lock(paths, task))  # none can start while we hold it
    if lock is None:
        return False
    try:
        status = paths.status(task)
        if status.state in ("ended", "lost"):
            return True
        if family.end(paths, [task], grace_s):
            return False
        status.state = "lost" if outcome == "lost" else "ended"
        status.outcome, status.reason, status.ended = outcome, reason, time.time()
        try:
            paths.write_status(status)
        except OSError:
            return False
        return True
    finally:
        os.close(lock)
