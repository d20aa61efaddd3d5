"""run.prepare: a run's folder on this host, whole or not at all, and its minder, which holds the ports from then on.

Nothing of the program starts here. Whatever fails leaves nothing behind.
"""

from __future__ import annotations

import errno
import json
import os
import select
import signal
import subprocess
import time
from contextlib import contextmanager

from tfdeploy.agent import layout, wire
from tfdeploy.agent.annotations import TYPE_CHECKING, Callable, Iterator, Optional
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.host import processes, sockets
from tfdeploy.agent.host.disk import free_of
from tfdeploy.agent.host.flock import is_locked, take_lock
from tfdeploy.agent.ownership import NotOurs, check
from tfdeploy.agent.run import check_files, find, in_doubt, leftovers, liveness, shown_plan, task_processes
from tfdeploy.agent.run import workdir as run_workdir
from tfdeploy.agent.run.find import damaged, host_names, job_names, run_names
from tfdeploy.agent.run.folder import RunPaths, agent_command
from tfdeploy.agent.serve import prepare_args, release_state, run_program, run_wanted
from tfdeploy.agent.serve.call import Call
from tfdeploy.agent.serve.error_codes import NO_LOCKS
from tfdeploy.agent.serve.prepare_args import Given

if TYPE_CHECKING:
    from tfdeploy.agent.answers import Prepared
    from tfdeploy.agent.shapes import MinderAnswer

MINDER_WITHIN_S = 20.0
PEERS_TOLD_S = 3.0
LOOK_S = 0.1
SAME_WITHIN_S = 600.0  # a slow disk's copy of a large release


def prepare(call: Call) -> Prepared:
    given = prepare_args.given(call)
    part = prepare_args.part(given)
    paths = RunPaths(layout.host_dir(call.context.workdir, part.job, part.run, part.host))
    check(paths.workdir, *layout.of_job(part.job))
    _check_owner(paths)
    with alone(paths, part.plan_digest):
        if _is_there(paths, part):
            return {"prepared": True}
        refuse_live_run(paths)
        _check_release(paths, part.release)
        with run_wanted.Wanted(call, paths, part.plan_digest) as wanted:
            _carry_out(paths, part, given, wanted.check)
    return {"prepared": True}


# --- may it be?


def _check_owner(paths: RunPaths) -> None:
    try:
        paths.check_owner("tasks")
    except NotOurs as error:
        raise VerbError("refused", error.what, where=error.path, next=error.next + ", or launch with another --name") from error


@contextmanager
def alone(paths: RunPaths, plan_digest: str = "") -> Iterator[None]:
    """One prepare of a job on this host at a time. The same one, asked again because its answer was late, is waited for."""
    place = _lock_file(paths)
    run_workdir.make_private(os.path.dirname(place))
    ours = ("%s %s" % (paths.run, plan_digest)).encode("ascii", "replace")
    begun = time.monotonic()
    lock = take_lock(place)
    while lock is None:
        waited = time.monotonic() - begun
        if waited > (SAME_WITHIN_S if _content(place) == ours else MINDER_WITHIN_S):
            raise VerbError(
                "locked", "another launch of job %s is being prepared on this host" % paths.job, next="tfdeploy status"
            )
        time.sleep(0.02)
        lock = take_lock(place)
    try:
        _sign(lock, ours)
        yield
    finally:
        os.close(lock)


@contextmanager
def unless_preparing(paths: RunPaths) -> Iterator[bool]:
    """Whether no prepare of the job goes on here; then none begins meanwhile."""
    lock = take_lock(_lock_file(paths)) if os.path.isdir(os.path.dirname(_lock_file(paths))) else None
    try:
        yield lock is not None
    finally:
        if lock is not None:
            os.close(lock)


def _lock_file(paths: RunPaths) -> str:
    return os.path.join(layout.locks_dir(paths.workdir, paths.job), "prepare." + paths.host)


def _sign(lock: int, words: bytes) -> None:
    try:
        os.ftruncate(lock, 0)
        os.pwrite(lock, words, 0)
    except OSError:
        pass  # a full disk: what is prepared says so itself


def _content(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(1000)
    except OSError:
        return b""


def _is_there(paths: RunPaths, part: wire.HostPart) -> bool:
    """This run is prepared already, by this very plan. What a dying prepare left half done is cleared away."""
    there = paths.plan_digest()
    same = there == part.plan_digest
    if same and liveness.is_live(paths) and not paths.word("abort"):
        return True
    if there is None and liveness.was_committed(paths):
        raise _exists(paths)  # damaged
    if there is not None and (not _is_undone(paths) if same else not is_rolled_back(paths)):
        raise _exists(paths)
    if os.path.isdir(paths.host_dir) or (os.path.isdir(paths.cwd) and not os.path.isdir(os.path.dirname(paths.host_dir))):
        clear_away(paths)
    _clear_others(paths, part)
    return False


def _exists(paths: RunPaths) -> VerbError:
    what = "run %s is here already" % paths.run
    return VerbError("exists", what, where=paths.run_dir, next="tfdeploy launch --name ANOTHER")


def _is_undone(paths: RunPaths) -> bool:
    """Prepared, and then its minder died."""
    return paths.state().phase == "prepared" and not paths.word("abort")


def is_rolled_back(paths: RunPaths) -> bool:
    """It was never committed, and nothing of it is alive: its name is free."""
    return not liveness.was_committed(paths) and not _is_alive(paths)


def clear_away(paths: RunPaths) -> None:
    """Only after the minder is gone: it writes there. It has nothing left to do but to tell its peers."""
    deadline = time.monotonic() + PEERS_TOLD_S
    while is_locked(paths.minder_lock) and time.monotonic() < deadline:
        time.sleep(0.02)
    minder = task_processes.minder(paths)
    if minder is not None:
        processes.send(minder, signal.SIGKILL)
    leftovers.remove(paths)


def _clear_others(paths: RunPaths, part: wire.HostPart) -> None:
    """What other hosts that share the workdir hold of a run of this name that was rolled back: its code is not this launch's."""
    for host in host_names(paths.workdir, paths.job, paths.run):
        if host != paths.host:
            _clear_other(RunPaths(layout.host_dir(paths.workdir, paths.job, paths.run, host)), part.plan_digest)


def _clear_other(other: RunPaths, plan_digest: str) -> None:
    """One that prepares the run at this moment clears away its own, which is waited for."""
    deadline = time.monotonic() + MINDER_WITHIN_S
    while time.monotonic() < deadline:
        with unless_preparing(other) as nobody:
            there = other.plan_digest()
            if not os.path.isdir(other.host_dir) or there == plan_digest:
                return
            if nobody:
                if there is not None and other.state().phase != "ended":
                    break
                if not (is_rolled_back(other) if there is not None else not liveness.was_committed(other)):
                    break
                leftovers.remove(other)
                return
            if there is None:
                return  # it has cleared away its own, and lays it out for this launch
        time.sleep(0.02)
    raise _exists(other)


def refuse_live_run(paths: RunPaths) -> None:
    for run in run_names(paths.workdir, paths.job):
        other = RunPaths(layout.host_dir(paths.workdir, paths.job, run, paths.host))
        if run == paths.run or check_files.wrong(paths.workdir, paths.job, run, paths.host) or not _is_alive(other):
            continue
        plan = shown_plan.read(paths.workdir, paths.job, run)
        details = {"run": run, "who": plan["operator"], "when": plan["created"]}
        what = "run %s of job %s is alive on this host, launched by %s" % (run, paths.job, plan["operator"])
        raise VerbError("live_run", what, next="tfdeploy stop %s" % run, details=details)
    _refuse_strays(paths)


def _refuse_strays(paths: RunPaths) -> None:
    """Tasks of a run whose folder somebody removed run on for a while, and write where ours would."""
    known = [run for run in run_names(paths.workdir, paths.job) if not damaged(paths.workdir, paths.job, run)]
    for pid in sorted(task_processes.strays(paths.workdir, paths.job)[0]):
        run = processes.environment(pid).get(wire.MARKER)
        if run is not None and run not in known:  # None: it has ended meanwhile
            what = "process %d on this host is of run %s of job %s, whose folder was removed or damaged" % (pid, run, paths.job)
            raise VerbError("live_run", what, next="tfdeploy stop %s, or kill %d there" % (run, pid), details={"run": run})


def _is_alive(paths: RunPaths) -> bool:
    if liveness.is_live(paths):
        return True
    # Its minder and supervisors may have been killed, and their processes not.
    return paths.state().phase != "ended" and bool(task_processes.members(paths, [spec.task for spec in paths.part().tasks])[0])


def _check_release(paths: RunPaths, release: str) -> None:
    wrong = release_state.damage(paths.workdir, paths.job, release)
    if wrong == [release]:
        raise VerbError("no_release", "release %s of job %s is not on this host" % (release, paths.job), next="tfdeploy sync")
    if wrong:
        what = "release %s of job %s is not as it was sent: %s" % (release, paths.job, ", ".join(wrong[:3]))
        raise VerbError("no_release", what, next="tfdeploy sync")


def _check_programs(paths: RunPaths, part: wire.HostPart) -> None:
    for spec in part.tasks:
        wrong = run_program.wrong(wire.whole_words(spec, part.texts), paths.cwd, os.environ)
        if wrong is not None:
            what, instead = wrong
            raise VerbError("no_program", what, where="command of %s on %s" % (spec.task, part.host), next=instead)


# --- doing it


def _carry_out(paths: RunPaths, part: wire.HostPart, given: Given, wanted: Callable[[], None]) -> None:
    try:
        _begin(paths)
        _lay_out(paths, part, given, wanted)
        wanted()
        _write_secrets(paths, part, given)
        start_minder(paths, part, wanted)
        wanted()
    except BaseException as error:
        minder = task_processes.minder(paths)
        leftovers.remove(paths)
        if minder is not None:
            processes.send(minder, signal.SIGKILL)  # nothing of the program has started
        if isinstance(error, OSError) and not isinstance(error, NotOurs):
            raise _no_room(error, paths) from error
        raise


def _begin(paths: RunPaths) -> None:
    """While its folder is there, no host that shares the workdir removes the run's."""
    lock = leftovers.folders_lock(paths)
    try:
        in_doubt.note(paths)
        run_workdir.make_private(paths.host_dir)
    finally:
        leftovers.let_go(lock)


def _lay_out(paths: RunPaths, part: wire.HostPart, given: Given, wanted: Callable[[], None]) -> None:
    run_workdir.make_cwd(paths, part.release, part.keep, part.links, wanted)
    for spec in part.tasks:
        run_workdir.make_private(paths.task_dir(spec.task))
    _check_programs(paths, part)
    shown_plan.write(paths.workdir, paths.job, paths.run, given.plan)
    paths.keep_room(part)
    try:
        os.mkfifo(paths.file(layout.MINDER_FIFO), 0o600)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP):
            raise
        raise VerbError("refused", "%s: %s" % (paths.workdir, error.strerror), where=paths.workdir, next=NO_LOCKS) from error


def _write_secrets(paths: RunPaths, part: wire.HostPart, given: Given) -> None:
    """Last of all, so that a death before leaves none. A folder without part.json is half done."""
    paths.write_secrets(given.secrets, given.certs)
    paths.write_part(part)


def start_minder(paths: RunPaths, part: wire.HostPart, wanted: Callable[[], None] = lambda: None) -> None:
    """Returns once it holds all ports. It is detached: nobody's child, with no file of ours open."""
    reading, writing = os.pipe()
    try:
        with open(paths.minder_log, "ab") as log:
            command = agent_command("minder", paths.host_dir, str(writing))
            starter = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=[writing], start_new_session=True
            )
        os.close(writing)
        writing = -1
        answer = _answer(reading, wanted)
        starter.wait()
    finally:
        os.close(reading)
        if writing >= 0:
            os.close(writing)
    if "port" in answer:
        port = answer["port"]
        owner = sockets.owner(port) or _holder(paths.workdir, port, paths.host) or "unknown"
        raise VerbError("port_taken", "port %d is taken by %s" % (port, owner), details={"port": port, "owner": owner})
    if not answer.get("ok"):
        raise VerbError("agent", "the run's minder did not start: %s" % _last_words(paths), where=paths.minder_log)


def _answer(reading: int, wanted: Callable[[], None]) -> MinderAnswer:
    text = b""
    deadline = time.monotonic() + MINDER_WITHIN_S
    while not text.endswith(b"\n") and time.monotonic() < deadline:
        wanted()
        if not select.select([reading], [], [], LOOK_S)[0]:
            continue
        part = os.read(reading, 4096)
        if not part:
            break
        text += part
    try:
        answer = json.loads(text.decode("ascii"))
    except ValueError:
        return {}
    if not isinstance(answer, dict):
        return {}
    port = answer.get("port")
    return {"port": port} if isinstance(port, int) else {"ok": bool(answer.get("ok"))}


def _last_words(paths: RunPaths) -> str:
    try:
        with open(paths.minder_log, "rb") as log:
            lines = log.read()[-2000:].decode("utf-8", "replace").strip().splitlines()
    except OSError:
        lines = []
    return lines[-1] if lines else "it said nothing within %g s" % MINDER_WITHIN_S


def _holder(workdir: str, port: int, told: str) -> Optional[str]:
    """A held port is seen nowhere in /proc: which live run of ours planned it?"""
    for job in job_names(workdir):
        for run in run_names(workdir, job):
            other = find.run_paths(workdir, job, run, told)
            if other is None or not other.is_whole() or not liveness.is_live(other):
                continue
            part = other.part()
            ports = [spec.port or spec.own_port for spec in part.tasks] + [one.port for one in part.mesh if one.host == part.host]
            if port in ports:
                return "run %s of job %s" % (run, job)
    return None


def _no_room(error: OSError, paths: RunPaths) -> VerbError:
    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
        return VerbError("disk", "the run's folder cannot be made: %s" % error, where=error.filename or paths.run_dir)
    free = free_of(paths.workdir)["free_bytes"]
    return VerbError("disk", "no room for the run: %d bytes are free" % free, where=paths.workdir, details={"free_bytes": free})
