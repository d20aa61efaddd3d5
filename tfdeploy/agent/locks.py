"""`lock` and `unlock`: one operation at a time on one job and host, for as long as the session that took it lives.

The lock is a flock on <workdir>/<job>/locks/<hostname>.lock, whose content says who holds it. The file is removed
when it is let go: whoever takes the lock checks that it is still the file of that name.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
import time
from typing import Any, Dict, Optional

from tfdeploy.agent import atomic, layout
from tfdeploy.agent.call import Call, Context, VerbError

POLL_S = 0.1
_taking = threading.Lock()


def lock(call: Call) -> Dict[str, Any]:
    """Waits up to `wait_s`. Raises VerbError locked, with the holder as details, or cancelled."""
    job = call.name("job")
    holder = dict(call.args.get("holder") or {}, operation=call.args.get("operation"))
    give_up = time.monotonic() + float(call.args.get("wait_s") or 0)
    while not _take(call.context, job, holder):
        if time.monotonic() >= give_up:
            raise _locked(call.context, job)
        if call.cancelled.wait(POLL_S):
            raise VerbError("cancelled", "no longer waiting for the lock of %s" % job)
    if call.cancelled.is_set():  # the session may have ended while we waited
        _let_go(call.context, job)
        raise VerbError("cancelled", "no longer waiting for the lock of %s" % job)
    return {"held": True}


def unlock(call: Call) -> Dict[str, Any]:
    """Nothing held: nothing done."""
    _let_go(call.context, call.name("job"))
    return {}


def _let_go(context: Context, job: str) -> None:
    release = context.closing.pop("lock " + job, None)
    if release is not None:
        release()


def _path(context: Context, job: str) -> str:
    return os.path.join(layout.locks_dir(context.workdir, job), os.uname().nodename + ".lock")


def _take(context: Context, job: str, holder: Dict[str, Any]) -> bool:
    with _taking:
        if "lock " + job in context.closing:
            return True
        path = _path(context, job)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        fd = _flocked(path)
        if fd is None:
            return False
        try:
            os.ftruncate(fd, 0)
            os.pwrite(fd, json.dumps(holder).encode("ascii"), 0)
        except OSError:
            os.close(fd)
            raise

        def release(held: int = fd) -> None:
            try:
                os.unlink(path)  # while it is held: nobody else can hold this name now
            finally:
                os.close(held)

        context.closing["lock " + job] = release
        return True


def _flocked(path: str) -> Optional[int]:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(fd), os.stat(path)):
            return fd
    except (BlockingIOError, FileNotFoundError):
        pass  # held, or removed by the one who just let go
    os.close(fd)
    return None


def _locked(context: Context, job: str) -> VerbError:
    holder = atomic.read_json(_path(context, job)) or {}
    who = "%s@%s" % (holder.get("user", "somebody"), holder.get("machine", "an unknown machine"))
    what = "%s is busy here: %s by %s (pid %s)" % (job, holder.get("operation", "an operation"), who, holder.get("pid", "?"))
    return VerbError("locked", what, next="wait for it, or end it", details=holder)


VERBS = {"lock": lock, "unlock": unlock}
