"""`lock` and `unlock`: one operation at a time on one job and host, for as long as the session that
took it lives.

The lock is <workdir>/<job>/locks/<hostname>-<place>.lock, whose content names the holder. Hosts
that share the workdir have a lock each, also clones with one hostname. Its release removes the
file.
"""

from __future__ import annotations

import os
import threading
import time

from tfdeploy.agent import frames, json_text, layout
from tfdeploy.agent.annotations import TYPE_CHECKING, List, Optional
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.host import atomic
from tfdeploy.agent.host.flock import FileLock, is_locked
from tfdeploy.agent.run.find import place
from tfdeploy.agent.serve.call import Call, Context
from tfdeploy.agent.serve.lock import fences as lock_fences

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Answer, LockHolder

POLL_S = 0.1
# how long a session may still hold its lock after its connection has ended
OUTLIVED_S = frames.SILENCE_S + 5.0
_taking = threading.Lock()


def lock(call: Call) -> Answer:
    """Take the job's lock on this host for this session. Waits up to `wait_s`.

    Args: job, operation, holder {user, machine, pid, time}, wait_s?, soon?: verbs whose modules are
    loaded meanwhile.

    Raises VerbError locked (details: the holder), cancelled.
    """
    job = call.name("job")
    holder = lock_fences.holder_of(
        {**call.table("holder"), "operation": call.args.get("operation")}
    )
    holder["of_host"] = call.context.host
    give_up = time.monotonic() + (call.number("wait_s") or 0.0)
    while not _take(call.context, job, holder):
        if time.monotonic() >= give_up:
            raise _locked(call.context, job)
        if call.cancelled.wait(POLL_S):
            raise VerbError("cancelled", "no longer waiting for the lock of %s" % job)
    if call.cancelled.is_set():  # the session may have ended while we waited
        _release(call.context, job)
        raise VerbError("cancelled", "no longer waiting for the lock of %s" % job)
    return {"held": True, "fence": lock_fences.current(_path(call.context, job))}


def unlock(call: Call) -> Answer:
    """Release the lock, where this session holds it, and remove the files that killed sessions left
    of it.

    Args: job.
    """
    job = call.name("job")
    files = _stale_files(call.context, _path(call.context, job))
    if not _release(call.context, job):
        files.append(_path(call.context, job))
    for path in files:
        remove_if_free(path)
    return {}


def remove_if_free(path: str) -> None:
    """Remove the lock file unless a process holds it."""
    lock = FileLock(path)
    if os.path.exists(path) and lock.acquire(0):
        lock.remove()


def check_fence(call: Call) -> None:
    """For verbs that change a job's files: makes sure that this session holds the lock with the
    number `fence`.

    A session that does not hold the lock takes it again with that number, and waits while an
    earlier session with that number holds it. Without a number (an older tfdeploy) no other session
    may hold it. Raises VerbError lock_lost, locked, cancelled.
    """
    if "job" not in call.args and isinstance(call.args.get("part"), dict):  # run.prepare
        call = Call(call.context, dict(call.args["part"], fence=call.args.get("fence")))
    job, number = (
        call.name("job"),
        None if call.args.get("fence") is None else call.integer("fence"),
    )
    path = _path(call.context, job)
    if number is None:
        if not holds_lock(call.context, job) and is_locked(path):
            raise _locked(call.context, job)
        return
    give_up = time.monotonic() + OUTLIVED_S
    while number == lock_fences.current(path):
        if _take(call.context, job, lock_fences.last_taker(path), number):
            return
        if time.monotonic() >= give_up:
            raise _locked(call.context, job)
        if call.cancelled.wait(POLL_S):
            raise VerbError("cancelled", "no longer waiting for the lock of %s" % job)
    raise _lost(job, _holder(path) or lock_fences.last_taker(path))


def _lost(job: str, holder: LockHolder) -> VerbError:
    holder.pop("of_host", None)
    operator = "%s@%s (pid %s)" % (
        holder.get("user", "?"),
        holder.get("machine", "?"),
        holder.get("pid", "?"),
    )
    how = "and has since been taken for the %s of %s" % (holder.get("operation", "?"), operator)
    return VerbError(
        "lock_lost",
        "the lock of job %s was lost here, %s"
        % (job, how if holder else "for example by a reboot"),
        advice="again",
        details=holder,
    )


def _release(context: Context, job: str) -> bool:
    """False: this session did not hold it."""
    release = context.closing.get("lock " + job)
    if release is not None:
        release()
        context.closing.pop("lock " + job, None)
    return release is not None


def holds_lock(context: Context, job: str) -> bool:
    """Whether this session holds the lock of the job."""
    return "lock " + job in context.closing


def own_path(context: Context, job: str) -> str:
    """The lock file that this session holds; "": it does not hold the job's lock."""
    return _path(context, job) if holds_lock(context, job) else ""


def take_at_once(context: Context, job: str, holder: LockHolder) -> None:
    """Raises VerbError locked."""
    if not _take(context, job, holder):
        raise _locked(context, job)


def let_go(context: Context, job: str) -> None:
    """Releases it, where this session holds it."""
    _release(context, job)


def _path(context: Context, job: str) -> str:
    return os.path.join(
        layout.locks_dir(context.workdir, job), "%s-%s.lock" % (os.uname().nodename, place())
    )


def _holder(path: str) -> LockHolder:
    """Who holds that lock, or held it last; empty where that is not known."""
    return lock_fences.holder_of(atomic.read_json(path) or {})


def _stale_files(context: Context, own: str) -> List[str]:
    """Files like `own` that earlier boots left after a power cut. Clones share a hostname, so the
    inventory's name counts too."""
    folder, name = os.path.split(own)
    start = name[: -len(place() + ".lock")]
    stale = [
        os.path.join(folder, name)
        for name in _names(folder)
        if name.startswith(start) and name.endswith(".lock")
    ]
    return [path for path in stale if path != own and _holder(path).get("of_host") == context.host]


def _remove_files(paths: List[str]) -> None:
    for path in paths:
        try:
            os.unlink(path)
        except OSError:
            pass  # removed already


def _names(folder: str) -> List[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []


class _JobLock:
    """A lock that is acquired and released once. The session may end at any moment: `release` waits
    for `acquire` in another thread."""

    def __init__(self, path: str) -> None:
        self._lock = FileLock(path)
        self._is_released = False
        self._mutex = threading.Lock()

    def acquire(self, holder: LockHolder) -> bool:
        with self._mutex:
            if self._is_released or not self._lock.acquire(0):
                return False
            self._lock.write(json_text.dumps(holder).encode("ascii"))
            return True

    def release(self) -> None:
        with self._mutex:
            self._is_released = True
            if self._lock.descriptor is not None:
                self._lock.remove()


def _take(context: Context, job: str, holder: LockHolder, number: Optional[int] = None) -> bool:
    """Takes the lock for this session; true also where it has it. With `number`, only the lock of
    that number."""
    with _taking:
        name = "lock " + job
        if name in context.closing:
            return True
        path = _path(context, job)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        job_lock = _JobLock(path)
        # before the lock is taken: so the session's end always releases it
        context.closing[name] = job_lock.release
        taken = False
        try:
            if job_lock.acquire(holder):
                if number is None:
                    lock_fences.advance(path, holder)
                    _remove_files(_stale_files(context, lock_fences.path_of(path)))
                taken = number in (None, lock_fences.current(path))
        finally:
            if not taken:
                job_lock.release()
                context.closing.pop(name, None)
        return taken


def _locked(context: Context, job: str) -> VerbError:
    holder = _holder(_path(context, job))
    holder.pop("of_host", None)
    operator = "%s@%s" % (
        holder.get("user", "somebody"),
        holder.get("machine", "an unknown machine"),
    )
    what = "%s is busy here: %s by %s (pid %s)" % (
        job,
        holder.get("operation", "an operation"),
        operator,
        holder.get("pid", "?"),
    )
    return VerbError("locked", what, advice="wait", details=holder)


VERBS = {"lock": lock, "unlock": unlock}
