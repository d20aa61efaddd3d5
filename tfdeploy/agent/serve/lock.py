"""Answers `lock` and `unlock`. A job's lock on a host allows one operation at a time. It is held as
long as the session that acquired it lives.

The lock is the file <workdir>/<job>/locks/<hostname>-<place>.lock, whose content names the holder.
<place> is an id of the host's current boot, so each host that shares the workdir has a lock of its
own, even if clones have the same hostname. The file is removed when the lock is released.

A small file beside the locks stores the lock's fencing number. The number rises each time the lock
is acquired, and stays when the session ends. If a session breaks, tfdeploy continues in a new
session, and the number shows whether another operator has acquired the lock in between.

Two reserve files beside the number make space for the lock and the number on a full disk, because
`clean`, which frees space, needs the lock. Hosts that share the workdir share the reserves.
"""

from __future__ import annotations

import os
import threading
import time

from tfdeploy.agent import frames, json_text, layout
from tfdeploy.agent.annotations import TYPE_CHECKING, List, Optional
from tfdeploy.agent.call import Call, SessionContext
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.host import atomic, reserved_space
from tfdeploy.agent.host.atomic import list_names, read_json, write_json
from tfdeploy.agent.host.flock import FileLock, is_locked
from tfdeploy.agent.host.private_folder import make_private_folder
from tfdeploy.agent.run.file_origin import boot_and_container_id

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Answer, Fence, LockHolder, Unchecked

POLL_S = 0.1
# The longest time that a session may hold its lock after its connection has ended.
OUTLIVED_S = frames.SILENCE_S + 5.0
_acquiring = threading.Lock()


def acquire_lock(call: Call) -> Answer:
    """Acquire the job's lock on this host for this session. Waits up to `wait_s`.

    Args: job, operation, holder {user, machine, pid, time}, wait_s?, soon? (verbs that will be
    called soon, whose modules are loaded after the answer).

    Raises VerbError locked (details: the holder), cancelled.
    """
    job = call.job
    holder = parse_holder({**call.table("holder"), "operation": call.args.get("operation")})
    holder["of_host"] = call.host
    give_up = time.monotonic() + (call.number("wait_s") or 0.0)
    while not _try_acquire(call.context, job, holder):
        _pause_while_held(call, job, give_up)
    if call.cancelled.is_set():  # the session may have ended while we waited
        release_if_held(call.context, job)
        raise _lock_wait_cancelled_error(job)
    return {
        "held": True,
        "fence": read_fencing_number(_lock_path(call.context, job)),
    }


def release_lock(call: Call) -> Answer:
    """Release the lock if this session holds it. Also remove lock files that sessions left when
    they were killed.

    Args: job.
    """
    job = call.job
    path = _lock_path(call.context, job)
    release_if_held(call.context, job)
    for each in [path, *_find_stale_lock_files(call.context, path)]:
        remove_unheld_lock(each)
    return {}


def remove_unheld_lock(path: str) -> None:
    """Remove the lock file unless a process holds it."""
    lock = FileLock(path)
    if os.path.exists(path) and lock.acquire(0):
        lock.remove()


def ensure_job_lock(call: Call) -> None:
    """Check that this session holds the job's lock, and that the call's argument `fence` is the
    lock's current fencing number. This check comes before each verb that changes a job's files.

    If the number is right but this session does not hold the lock, acquire the lock again. An
    earlier session with the same number may still hold the lock; wait for the end of that session.
    If the call comes from an older tfdeploy, which sends no number, only check that no other
    session holds the lock. Raises VerbError lock_lost, locked, cancelled.
    """
    # A call of `run.prepare` has no argument `job`. The job is a field of its argument `part`.
    if "job" not in call.args and isinstance(call.args.get("part"), dict):
        call = Call(call.context, dict(call.args["part"], fence=call.args.get("fence")))
    job = call.job
    number = None if call.args.get("fence") is None else call.integer("fence")
    path = _lock_path(call.context, job)
    if number is None:
        if not holds_lock(call.context, job) and is_locked(path):
            raise _lock_held_error(call.context, job)
        return
    give_up = time.monotonic() + OUTLIVED_S
    while number == read_fencing_number(path):
        if _try_acquire(call.context, job, read_last_holder(path), number):
            return
        _pause_while_held(call, job, give_up)
    raise _lock_lost_error(job, _read_holder(path) or read_last_holder(path))


def _pause_while_held(call: Call, job: str, give_up: float) -> None:
    """Wait a moment before the next attempt to acquire the lock. Raises VerbError locked if the
    monotonic time `give_up` has been reached, and cancelled if the call was cancelled."""
    if time.monotonic() >= give_up:
        raise _lock_held_error(call.context, job)
    if call.cancelled.wait(POLL_S):
        raise _lock_wait_cancelled_error(job)


def _lock_wait_cancelled_error(job: str) -> VerbError:
    return VerbError("cancelled", "the wait for the lock of job %s was cancelled" % job)


def _lock_lost_error(job: str, holder: LockHolder) -> VerbError:
    holder.pop("of_host", None)
    template = (
        "the lock has since been taken for the %(operation)s of %(user)s@%(machine)s (pid %(pid)s)"
    )
    shown_holder = {**dict.fromkeys(("operation", "user", "machine", "pid"), "?"), **holder}
    why = template % shown_holder if holder else "the host may have been rebooted"
    what = "the lock of job %s was lost on this host: %s" % (job, why)
    return VerbError("lock_lost", what, advice="again", details=holder)


def release_if_held(context: SessionContext, job: str) -> None:
    """Release the job's lock if this session holds it."""
    release_now = context.closing_functions.get("lock " + job)
    if release_now is not None:
        release_now()
        context.closing_functions.pop("lock " + job, None)


def holds_lock(context: SessionContext, job: str) -> bool:
    """Return whether this session holds the lock of the job."""
    return "lock " + job in context.closing_functions


def held_lock_path(context: SessionContext, job: str) -> str:
    """Return the path of the job's lock file if this session holds the lock, else ""."""
    return _lock_path(context, job) if holds_lock(context, job) else ""


def acquire_or_raise(context: SessionContext, job: str, holder: LockHolder) -> None:
    """Acquire the lock without waiting. Raises VerbError locked."""
    if not _try_acquire(context, job, holder):
        raise _lock_held_error(context, job)


def _lock_path(context: SessionContext, job: str) -> str:
    return os.path.join(
        layout.locks_dir(context.workdir, job),
        "%s-%s.lock" % (os.uname().nodename, boot_and_container_id()),
    )


def _read_holder(path: str) -> LockHolder:
    """Return the holder that the lock file names, or {} if the file names none."""
    return parse_holder(atomic.read_json(path) or {})


def _find_stale_lock_files(context: SessionContext, current_path: str) -> List[str]:
    """List the lock files that this host made before its last boot. Such files remain after a power
    cut. A file counts as made by this host if both the hostname and the name in the inventory are
    equal, because cloned hosts share a hostname. `current_path`: the lock file of the current
    boot."""
    folder, name = os.path.split(current_path)
    host_prefix = name[: -len(boot_and_container_id() + ".lock")]
    stale = [
        os.path.join(folder, name)
        for name in list_names(folder)
        if name.startswith(host_prefix) and name.endswith(".lock")
    ]
    return [
        path
        for path in stale
        if path != current_path and _read_holder(path).get("of_host") == context.host
    ]


class _JobLock:
    """A lock that is acquired and released once. Because the session may end at any moment,
    `release` may be called while another thread is in `acquire`. It then waits until `acquire` has
    returned."""

    def __init__(self, path: str) -> None:
        self._lock = FileLock(path)
        self._is_released = False
        self._mutex = threading.Lock()

    def acquire(self, holder: LockHolder) -> bool:
        with self._mutex:
            if not self._is_released:
                reserved_space.write_and_reserve(
                    _reserve_path(self._lock.path, "lock"), lambda: self._acquire(holder)
                )
            return self._lock.descriptor is not None

    def _acquire(self, holder: LockHolder) -> None:
        if self._lock.descriptor is not None or self._lock.acquire(0):
            self._lock.write(json_text.encode(holder))

    def release(self) -> None:
        with self._mutex:
            self._is_released = True
            if self._lock.descriptor is not None:
                self._lock.remove()


def _try_acquire(
    context: SessionContext, job: str, holder: LockHolder, fencing_number: Optional[int] = None
) -> bool:
    """Acquire the lock for this session. Return whether the session now holds the lock. If
    `fencing_number` is given, acquire the lock only if the lock still has this fencing number."""
    with _acquiring:
        name = "lock " + job
        if name in context.closing_functions:
            return True
        path = _lock_path(context, job)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        make_private_folder(os.path.dirname(fencing_number_path(path)))
        job_lock = _JobLock(path)
        # The function that releases the lock is registered before the lock is acquired. So the end
        # of the session always releases the lock.
        context.closing_functions[name] = job_lock.release
        is_acquired = False
        try:
            if job_lock.acquire(holder):
                if fencing_number is None:
                    advance_fencing_number(path, holder)
                    for stale in _find_stale_lock_files(context, fencing_number_path(path)):
                        atomic.remove_file(stale)
                is_acquired = fencing_number in (None, read_fencing_number(path))
        finally:
            if not is_acquired:
                job_lock.release()
                context.closing_functions.pop(name, None)
        return is_acquired


def _lock_held_error(context: SessionContext, job: str) -> VerbError:
    holder = _read_holder(_lock_path(context, job))
    holder.pop("of_host", None)
    shown_holder = {
        "operation": "an operation",
        "user": "somebody",
        "machine": "an unknown machine",
        "pid": "?",
        **holder,
    }
    what = "%s is busy here: %s" % (
        job,
        "%(operation)s by %(user)s@%(machine)s (pid %(pid)s)" % shown_holder,
    )
    return VerbError("locked", what, advice="wait", details=holder)


# --- the fencing number


def advance_fencing_number(lock_path: str, holder: LockHolder) -> None:
    """Write a new number for the holder that has just acquired the lock. The number is at least the
    current time in milliseconds. So no number is used twice, even if the file that stores the
    number was lost."""
    fence: Fence = {
        **holder,
        "number": max(read_fencing_number(lock_path) + 1, int(time.time() * 1000)),
    }
    # `clean --everything` may have removed the folder while this operation waited for the lock.
    make_private_folder(os.path.dirname(fencing_number_path(lock_path)))
    reserved_space.write_and_reserve(
        _reserve_path(lock_path, "number"),
        lambda: write_json(fencing_number_path(lock_path), fence, durable=True),
    )


def _reserve_path(lock_path: str, use: str) -> str:
    return os.path.join(os.path.dirname(fencing_number_path(lock_path)), use)


def read_fencing_number(lock_path: str) -> int:
    """Return the fencing number that was written when the lock was last acquired. Return 0 if the
    lock was never acquired."""
    number = (read_json(fencing_number_path(lock_path)) or {}).get("number")
    return number if isinstance(number, int) else 0


def read_last_holder(lock_path: str) -> LockHolder:
    """Return the last holder, as the call `lock` gave it: user, machine, pid, time, operation."""
    return parse_holder(read_json(fencing_number_path(lock_path)) or {})


def parse_holder(fields: Unchecked) -> LockHolder:
    """Return the holder of a lock. `fields`: the content of a lock file, of a fencing file or of a
    request. The lengths of the texts are not checked here, but on the machine that shows them."""
    names = ["user", "machine", "pid", "time", "operation"]
    if isinstance(fields.get("of_host"), str):
        names.append("of_host")
    holder: LockHolder = {name: fields[name] for name in names if name in fields}  # type: ignore[assignment]
    return holder


def fencing_number_path(lock_path: str) -> str:
    """Return the path of the file that stores the fencing number of that lock."""
    folder, name = os.path.split(lock_path)
    return os.path.join(os.path.dirname(folder), "fences", name)


VERBS = {
    "lock": acquire_lock,
    "unlock": release_lock,
}
