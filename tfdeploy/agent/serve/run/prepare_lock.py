"""Holds the prepare lock of a job, which allows one prepare (call of run.prepare) at a time on each
host."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager

from tfdeploy.agent import layout
from tfdeploy.agent.annotations import Iterator
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.host.flock import FileLock
from tfdeploy.agent.host.private_folder import make_private_folder
from tfdeploy.agent.run.folder import RunPaths

WAIT_S = 20.0  # how long to wait while another launch prepares a run of the job
# How long to wait for an earlier `run.prepare` call of the same launch. That call may copy a large
# release on a slow disk.
SAME_WAIT_S = 600.0


@contextmanager
def hold(paths: RunPaths, plan_digest: str = "") -> Iterator[None]:
    """Hold the prepare lock of the job. Raises VerbError locked if another launch keeps it for
    longer than WAIT_S.

    If a launch calls `run.prepare` again because the answer was late, the second call waits up to
    SAME_WAIT_S for the first one.
    """
    path = _lock_path(paths)
    make_private_folder(os.path.dirname(path))
    owner = ("%s %s" % (paths.run, plan_digest)).encode("ascii", "replace")
    started_at = time.monotonic()
    with FileLock(path) as lock:
        while not lock.acquire():
            waited = time.monotonic() - started_at
            if waited > (SAME_WAIT_S if _read_owner(path) == owner else WAIT_S):
                raise VerbError(
                    "locked",
                    "another launch of job %s is being prepared on this host" % paths.job,
                    advice="status",
                )
        try:
            lock.write(owner)
        except OSError:
            pass  # the disk is full; the prepare itself then fails with that error
        yield


@contextmanager
def hold_if_free(paths: RunPaths) -> Iterator[bool]:
    """Try to acquire the prepare lock of the job, for the time of the `with` block.

    Yields True if the lock was acquired: then no prepare of the job runs on this host before the
    block ends. Yields False if a prepare is in progress, or if the job has no folder of locks,
    because no prepare has ever begun.
    """
    with FileLock(_lock_path(paths)) as lock:
        yield os.path.isdir(os.path.dirname(_lock_path(paths))) and lock.acquire()


def _lock_path(paths: RunPaths) -> str:
    return os.path.join(layout.locks_dir(paths.workdir, paths.job), "prepare." + paths.host)


def _read_owner(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(1000)
    except OSError:
        return b""
