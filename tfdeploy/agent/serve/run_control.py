"""run.start, run.commit, run.abort, run.stop: words left for the minder, and waiting for their effect.

Where no minder is left, abort and stop do its work themselves. What is not ours by marker and identity is never touched.
"""

from __future__ import annotations

import os
import signal
import time

from tfdeploy.agent import layout
from tfdeploy.agent.annotations import TYPE_CHECKING, Any, Callable, Dict, List
from tfdeploy.agent.errors import NAME, VerbError
from tfdeploy.agent.host import processes
from tfdeploy.agent.host.flock import is_locked, take_lock
from tfdeploy.agent.layout import NoPart
from tfdeploy.agent.mesh.shared_state import ending_of
from tfdeploy.agent.minder import store
from tfdeploy.agent.minder.decide import STOPPED_BY_OPERATOR
from tfdeploy.agent.minder.supervisors import tell_supervisor
from tfdeploy.agent.run import clock, in_doubt, leftovers, liveness, reap, task_processes
from tfdeploy.agent.run.folder import RunPaths
from tfdeploy.agent.serve import prepare_lock, run_status
from tfdeploy.agent.serve.call import Call, Verb
from tfdeploy.agent.serve.run_prepare import clear_away, prepare
from tfdeploy.agent.serve.run_watch import watch

if TYPE_CHECKING:
    from tfdeploy.agent.answers import Aborted, Ended, Nothing, Survivor

ANSWER_WITHIN_S = 20.0
KILL_WITHIN_S = 8.0  # from KILL to nothing left
ENDING_S = 3.0  # what ends on a busy host is seen for a while without words and environment, like an orphan of unknown origin
SAVE_WITHIN_S = 1.0  # a full disk may keep the minder from saying that all has ended
UNHEARD_S = 3.0  # a minder that does not even begin by then is frozen
LOOK_S = 0.05
STARTED = ("started", "committed", "ending", "ended")


def start(call: Call) -> Nothing:
    paths = run_status.paths_of(call)
    state = paths.state()
    if state.phase == "ended" and state.started and not (state.abort_reason or state.stop_requested):
        return {}  # started, and over in good order already
    refuse_ended(paths)
    if paths.word("start") is None or _phase(paths) == "started":  # said again: the wait for the commit begins anew
        paths.say("start", time=time.time())
    _wait_for(paths, lambda: _phase(paths) in STARTED and _supervised(paths))
    refuse_ended(paths)
    return {}


def _supervised(paths: RunPaths) -> bool:
    return _phase(paths) == "ended" or all(paths.status(spec.task).state != "pending" for spec in paths.part().tasks)


def renew(call: Call) -> Nothing:
    """The launch is alive: what is prepared or started waits for its next word as long again."""
    paths = run_status.paths_of(call)
    _refuse_other_plan(call, paths)
    if not _is_committed(paths):
        refuse_ended(paths, also=("ending",))
        paths.say("renew", time=time.time())
    return {}


def _refuse_other_plan(call: Call, paths: RunPaths) -> None:
    if call.text("plan_digest", paths.part().plan_digest) != paths.part().plan_digest:
        raise VerbError("unknown_run", "run %s of this host was prepared by another launch" % paths.run)


def commit(call: Call) -> Nothing:
    paths = run_status.paths_of(call)
    if _is_committed(paths):
        return {}
    refuse_ended(paths)
    if _phase(paths) == "prepared" and paths.word("start") is None:
        raise VerbError("not_started", "run %s was not started on this host" % paths.run)
    if paths.word("commit") is None:
        paths.say("commit", time=time.time())
    _wait_for(paths, lambda: _is_committed(paths) or _phase(paths) in ("ending", "ended"))
    if not _is_committed(paths):
        refuse_ended(paths, also=("ending",))
    return {}


def _is_committed(paths: RunPaths) -> bool:
    return paths.says_committed() and _phase(paths) != "started"


def abort(call: Call) -> Aborted:
    """Ends all of it. `purge`: removes the run's folder when nothing of it is alive. `plan_digest`: of whoever rolls back;
    a run of that name by another plan is not theirs, and nothing is touched. `host`: a prepare that goes on is stopped first."""
    _stop_preparing(call)
    try:
        paths = run_status.paths_of(call)
        if call.text("plan_digest", paths.part().plan_digest) != paths.part().plan_digest:
            return {}
        reason, purge = call.text("reason", "rolled back"), call.flag("purge")
        if _phase(paths) != "ended" or _lingers(paths):
            _say_the_end(paths, "abort", reason=reason)
        left = _end(paths, paths.part().stop_grace_s, reason)
    except (VerbError, NoPart) as error:
        if isinstance(error, VerbError) and error.code != "unknown_run":
            raise
        return {}  # or its minder has removed it meanwhile
    if purge and not left:
        clear_away(paths)
    return {"survivors": left}


def _stop_preparing(call: Call) -> None:
    host, digest = call.text("host"), str(call.args.get("plan_digest"))
    if not NAME.match(host):
        return  # a control machine of before
    paths = RunPaths(layout.host_dir(call.context.workdir, call.name("job"), call.name("run"), host))
    if not in_doubt.is_in_doubt(paths):
        return
    in_doubt.abort(paths, digest)
    with prepare_lock.held(paths, digest):
        in_doubt.forget_abort(paths)


def stop(call: Call) -> Ended:
    """TERM to the whole tree, grace, KILL, verify. "messenger": its minder stays to tell hosts that are away."""
    begun = time.monotonic()
    given = call.number("grace_s")
    try:
        paths = run_status.paths_of(call)
    except VerbError as error:
        if error.code != "unknown_run":
            raise
        left = task_processes.end_strays(call.context.workdir, call.name("job"), call.name("run"), given or 0.0)
        if left is None:
            raise
        return {"survivors": left, "seconds": round(time.monotonic() - begun, 3), "messenger": False}
    grace_s = paths.part().stop_grace_s if given is None else given
    if _phase(paths) != "ended" or _lingers(paths):
        before = paths.word("stop")
        if before is None or before.get("grace_s", grace_s) > grace_s:
            _say_the_end(paths, "stop", grace_s=grace_s)
    left = _end(paths, grace_s, STOPPED_BY_OPERATOR)
    return {"survivors": left, "seconds": round(time.monotonic() - begun, 3), "messenger": _lingers(paths)}


# --- the effect


def _say_the_end(paths: RunPaths, word: str, **fields: Any) -> None:
    """Leaves the word; where the disk is full, the supervisors are told by signal, and the minder sees the effect."""
    try:
        paths.say(word, time=time.time(), **fields)
    except OSError:
        for spec in paths.part().tasks:
            tell_supervisor(paths, spec.task, STOPPED_BY_OPERATOR, paths.part().stop_grace_s)


def _lingers(paths: RunPaths) -> bool:
    """Its minder still waits for its peers; it goes once it is told, for then they are told too."""
    return is_locked(paths.minder_lock)


def _phase(paths: RunPaths) -> str:
    return paths.state().phase


def refuse_ended(paths: RunPaths, also: "tuple[str, ...]" = ()) -> None:
    state = paths.state()
    if state.phase == "ended" or state.phase in also or not liveness.is_live(paths):
        why = state.abort_reason or (STOPPED_BY_OPERATOR if state.stop_requested else "its minder is gone")
        raise VerbError("ended", "run %s has ended on this host: %s" % (paths.run, why), next="tfdeploy status %s" % paths.run)


def _wait_for(paths: RunPaths, reached: Callable[[], bool], within_s: float = ANSWER_WITHIN_S) -> None:
    """Raises VerbError when nobody answers."""
    deadline = time.monotonic() + within_s
    pause = 0.002
    while not reached():
        if time.monotonic() > deadline:
            raise VerbError("agent", "the run's minder does not answer", where=paths.minder_log)
        if not liveness.is_live(paths) and not reached():
            return
        time.sleep(pause)
        pause = min(pause * 1.5, 0.05)


def _end(paths: RunPaths, grace_s: float, reason: str) -> List[Survivor]:
    """Waits for the minder to end the run; where there is none, does it. Returns the survivors."""
    tasks = [spec.task for spec in paths.part().tasks]
    begun = time.monotonic()
    deadline = begun + grace_s + KILL_WITHIN_S
    pause = 0.005
    _thaw(paths, tasks, signal.SIGCONT)
    while _phase(paths) != "ended" and os.path.isdir(paths.host_dir) and time.monotonic() < deadline:
        if not is_locked(paths.minder_lock) and end_without_minder(paths, grace_s, reason):
            break
        if time.monotonic() - begun >= UNHEARD_S:
            _thaw(paths, tasks, signal.SIGKILL)
        if time.monotonic() - begun >= UNHEARD_S and _phase(paths) not in ("ending", "ended"):
            for task in tasks:
                tell_supervisor(paths, task, reason, grace_s)
        if pause >= LOOK_S and not _lives(paths, tasks):
            deadline = min(deadline, time.monotonic() + SAVE_WITHIN_S)
        time.sleep(pause)
        pause = min(pause * 1.5, LOOK_S)
    found = task_processes.members(paths, tasks)
    deadline = max(deadline, time.monotonic() + ENDING_S)
    while found[0] and time.monotonic() < deadline:
        time.sleep(pause)
        found = task_processes.members(paths, tasks)
    return task_processes.survivors(*found)


def _thaw(paths: RunPaths, tasks: List[str], number: int) -> None:
    """Our own processes of the run that are stopped: woken up, or killed where a debugger holds them."""
    keepers = [task_processes.minder(paths), *(task_processes.supervisor(paths, task) for task in tasks)]
    for who in (one for one in keepers if one is not None):
        found = processes.entry(who.pid)
        if found is not None and found.state in "Tt":
            processes.send(who, number)


def _lives(paths: RunPaths, tasks: List[str]) -> bool:
    """Something runs, or a supervisor is about to start it. One that only cannot write how it ended does not count."""
    coming = [task for task in tasks if paths.status(task).state == "pending"]
    return any(is_locked(paths.supervisor_lock(task)) for task in coming) or bool(task_processes.members(paths, tasks)[0])


def end_without_minder(paths: RunPaths, grace_s: float, reason: str) -> bool:
    """Does it under the minder's lock, so that none comes in between. False: one did."""
    lock = take_lock(paths.minder_lock)
    if lock is None:
        return False
    try:
        store.tidy(paths)
        part = paths.part()
        tasks = [spec.task for spec in part.tasks]
        _supervisors_end(paths, tasks, grace_s, reason)
        task_processes.end(paths, tasks, grace_s)
        rebooted = paths.state().boot_id not in (None, processes.boot_id())
        outcome = ("lost", "host rebooted") if rebooted else ("stopped", reason)
        reaped = [reap.reap(paths, task, *outcome) for task in tasks]
        if all(reaped):
            leftovers.forget_secrets(paths)
            state = paths.state()
            state.phase, state.ended = "ended", clock.now(part)
            state.stop_requested = state.stop_requested or paths.word("stop") is not None
            if paths.word("abort") is not None:
                state.abort_reason = state.abort_reason or reason
            leftovers.restore_links(paths)
            state.left_files = leftovers.left_files(paths, part)
            state.ended_tasks.update({task: ending_of(paths.status(task)) for task in tasks})
            paths.write_state(state)
            leftovers.settle(paths)
        return True
    finally:
        os.close(lock)


def _supervisors_end(paths: RunPaths, tasks: List[str], grace_s: float, reason: str) -> None:
    """A supervisor that lives without a minder ends its task itself."""
    for task in tasks:
        tell_supervisor(paths, task, reason, grace_s)
    deadline = time.monotonic() + grace_s + KILL_WITHIN_S / 2
    while time.monotonic() < deadline and any(is_locked(paths.supervisor_lock(task)) for task in tasks):
        time.sleep(0.02)


VERBS: Dict[str, Verb] = {
    "run.prepare": prepare,
    "run.renew": renew,
    "run.start": start,
    "run.commit": commit,
    "run.abort": abort,
    "run.stop": stop,
    "run.watch": watch,
}
