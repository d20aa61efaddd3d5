"""`lock` and `unlock`: one operation at a time on one job and host, for as long as the session that took it lives.

The lock is a flock on <workdir>/<job>/locks/<hostname>-<place>.lock, whose content says who holds it: hosts that share the
workdir have a lock each, clones with one hostname too. The file is removed when it is let go: whoever takes the lock checks
that it is still the file of that name.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
import time

from tfdeploy.agent import frames, layout
from tfdeploy.agent.annotations import TYPE_CHECKING, List, Optional
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.host import atomic
from tfdeploy.agent.host.flock import is_locked
from tfdeploy.agent.run.find import place
from tfdeploy.agent.serve import lock_fences
from tfdeploy.agent.serve.call import Call, Context

if TYPE_CHECKING:
    from tfdeploy.agent.answers import Held, Nothing
    from tfdeploy.agent.shapes import LockHolder

POLL_S = 0.1
OUTLIVED_S = frames.SILENCE_S + 5.0  # so long an earlier session may hold a lock whose connection has ended
_taking = threading.Lock()


def lock(call: Call) -> Held:
    """{"held", "fence": the number of this lock, see lock_fences}. Waits up to `wait_s`. Raises VerbError locked, with the holder
    as details, or cancelled."""
    job = call.name("job")
    holder = lock_fences.holder_of({**call.table("holder"), "operation": call.args.get("operation")})
    holder["of_host"] = call.context.host
    give_up = time.monotonic() + (call.number("wait_s") or 0.0)
    while not _take(call.context, job, holder):
        if time.monotonic() >= give_up:
            raise _locked(call.context, job)
        if call.cancelled.wait(POLL_S):
            raise VerbError("cancelled", "no longer waiting for the lock of %s" % job)
    if call.cancelled.is_set():  # the session may have ended while we waited
        _let_go(call.context, job)
        raise VerbError("cancelled", "no longer waiting for the lock of %s" % job)
    return {"held": True, "fence": lock_fences.current(_path(call.context, job))}


def unlock(call: Call) -> Nothing:
    """Nothing held: what a session that was killed has left of its lock goes too."""
    job = call.name("job")
    rest = _of_earlier_lives(call.context, _path(call.context, job))
    if not _let_go(call.context, job):
        rest.append(_path(call.context, job))
    for path in rest:
        left = flocked(path) if os.path.exists(path) else None
        if left is not None:
            os.unlink(path)
            os.close(left)
    return {}


def check_fence(call: Call) -> None:
    """For verbs that change a job's files. A session that does not hold the lock takes it again, with the number of its own
    lock as `fence`; it waits while an earlier session with this number still holds it. Without one (an older tfdeploy) it may
    while nobody else holds it. Raises VerbError lock_lost, locked, cancelled."""
    if "job" not in call.args and isinstance(call.args.get("part"), dict):  # run.prepare
        call = Call(call.context, dict(call.args["part"], fence=call.args.get("fence")))
    job, number = call.name("job"), None if call.args.get("fence") is None else call.whole("fence")
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
    who = "%s@%s (pid %s)" % (holder.get("user", "?"), holder.get("machine", "?"), holder.get("pid", "?"))
    since = "and has since been taken for the %s of %s" % (holder.get("operation", "?"), who) if holder else "by a reboot say"
    return VerbError(
        "lock_lost",
        "the lock of job %s was lost here, %s" % (job, since),
        next="wait for that, then the same command again",
        details=holder,
    )


def _let_go(context: Context, job: str) -> bool:
    """False: nothing was held."""
    release = context.closing.get("lock " + job)
    if release is not None:
        release()
        context.closing.pop("lock " + job, None)
    return release is not None


def holds_lock(context: Context, job: str) -> bool:
    """Whether this session does."""
    return "lock " + job in context.closing


def _path(context: Context, job: str) -> str:
    return os.path.join(layout.locks_dir(context.workdir, job), "%s-%s.lock" % (os.uname().nodename, place()))


def _holder(path: str) -> LockHolder:
    """Who holds that lock, or left it; empty: nobody, or nobody knows."""
    return lock_fences.holder_of(atomic.read_json(path) or {})


def _of_earlier_lives(context: Context, own: str) -> List[str]:
    """What a power cut left of files like `own`. Of clones, whose names are equal, only of the one that we are told to be."""
    folder, name = os.path.split(own)
    start = name[: -len(place() + ".lock")]
    found = [os.path.join(folder, name) for name in _names(folder) if name.startswith(start) and name.endswith(".lock")]
    return [path for path in found if path != own and _holder(path).get("of_host") == context.host]


def _forget(paths: List[str]) -> None:
    for path in paths:
        try:
            os.unlink(path)
        except OSError:
            pass  # somebody else did


def _names(folder: str) -> List[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []


class _Lock:
    """One lock file, taken and let go of once. The session may end at any moment: whoever lets go waits for who takes."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd: Optional[int] = None
        self._over = False
        self._turn = threading.Lock()

    def take(self, holder: LockHolder) -> bool:
        with self._turn:
            fd = None if self._over else flocked(self._path)
            if fd is None:
                return False
            try:
                os.ftruncate(fd, 0)
                os.pwrite(fd, json.dumps(holder).encode("ascii"), 0)
            except OSError:
                os.close(fd)
                raise
            self._fd = fd
            return True

    def let_go(self) -> None:
        with self._turn:
            self._over = True
            if self._fd is None:
                return
            try:
                os.unlink(self._path)  # while it is held: nobody else can hold this name now
            finally:
                os.close(self._fd)
                self._fd = None


def _take(context: Context, job: str, holder: LockHolder, number: Optional[int] = None) -> bool:
    """For this session; held already: true. With `number`: again, by who took it last, and its number stays."""
    with _taking:
        name = "lock " + job
        if name in context.closing:
            return True
        path = _path(context, job)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        one = _Lock(path)
        context.closing[name] = one.let_go  # first: what the session leaves behind is nothing
        taken = False
        try:
            if one.take(holder):
                if number is None:
                    lock_fences.count(path, holder)
                    _forget(_of_earlier_lives(context, lock_fences.beside(path)))
                taken = number in (None, lock_fences.current(path))
        finally:
            if not taken:
                one.let_go()
                context.closing.pop(name, None)
        return taken


def flocked(path: str) -> Optional[int]:
    """The file, open and locked; None while somebody else holds it. Whoever lets go may remove it first."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(fd), os.stat(path)):
            return fd
    except (BlockingIOError, FileNotFoundError):
        pass  # held, or removed by the one who just let go
    except OSError as error:  # a filesystem without locks
        os.close(fd)
        error.filename = path
        raise
    os.close(fd)
    return None


def _locked(context: Context, job: str) -> VerbError:
    holder = _holder(_path(context, job))
    holder.pop("of_host", None)
    who = "%s@%s" % (holder.get("user", "somebody"), holder.get("machine", "an unknown machine"))
    what = "%s is busy here: %s by %s (pid %s)" % (job, holder.get("operation", "an operation"), who, holder.get("pid", "?"))
    return VerbError("locked", what, next="wait for it, or end it", details=holder)


VERBS = {"lock": lock, "unlock": unlock}
