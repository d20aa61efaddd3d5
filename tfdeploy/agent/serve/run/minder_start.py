"""Starts the minder of a run (the process that manages the run on this host), and waits until the
minder holds the run's ports. Before that, the caller acquires the prepare lock of the job, and
raises an error if another run of the job is alive on this host.

Answers run.resume: starts the minder again on a host where no process of the run is alive, for
example after a reboot. The run must be committed, must not have ended on this host, and must be the
job's latest run on this host.
"""

from __future__ import annotations

import json
import os
import select
import time
from contextlib import contextmanager

from tfdeploy.agent import layout, wire
from tfdeploy.agent.annotations import TYPE_CHECKING, Callable, Iterator
from tfdeploy.agent.call import Call, audited
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.host import processes
from tfdeploy.agent.host.atomic import read_end, read_start
from tfdeploy.agent.host.flock import FileLock
from tfdeploy.agent.host.network import listening
from tfdeploy.agent.host.private_folder import make_private_folder
from tfdeploy.agent.run import live_runs, liveness, shown_plan, task_processes
from tfdeploy.agent.run.find import find_damage, other_runs_of_host, run_names
from tfdeploy.agent.run.folder import RunPaths, start_agent
from tfdeploy.agent.run.live_runs import list_port_owners
from tfdeploy.agent.serve.run import status as run_status

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Answer, MinderAnswer

MINDER_WITHIN_S = 20.0  # a new minder that does not answer in this time counts as not started
POLL_S = 0.1
LOCK_WAIT_S = 20.0  # how long to wait while another launch prepares a run of the job
# How long to wait for an earlier `run.prepare` call of the same launch. That call may copy a large
# release on a slow disk.
SAME_LAUNCH_WAIT_S = 600.0


def start_minder(
    paths: RunPaths, part: wire.HostPart, raise_if_unwanted: Callable[[], None] = lambda: None
) -> None:
    """Start the minder and return once it holds all ports. The minder is detached, so it does not
    end with the `serve` process.

    `raise_if_unwanted` raises an error once the run is no longer to be prepared. Raises VerbError
    port_taken, refused (no firewall), agent.
    """
    read_descriptor, write_descriptor = os.pipe()
    try:
        try:
            starter = start_agent(
                paths.minder_log,
                "minder",
                paths.host_dir,
                str(write_descriptor),
                pass_fds=[write_descriptor],
            )
        finally:
            os.close(write_descriptor)
        answer = _read_answer(read_descriptor, raise_if_unwanted)
        starter.wait()
    finally:
        os.close(read_descriptor)
    if "port" in answer:
        port = answer["port"]
        owner = list_port_owners(paths.workdir, paths.host, paths.run).get(
            port
        ) or listening.describe_owners([port]).get(port, "unknown")
        what = "port %d is taken by %s" % (port, owner)
        raise VerbError("port_taken", what, details={"port": port, "owner": owner})
    if "firewall" in answer:
        what = "the firewall of the run cannot be made on this host: %s" % answer["firewall"]
        raise VerbError("refused", what, advice="protect_peers")
    if not answer.get("ok"):
        what = "the run's minder did not start: %s" % _last_log_line(paths)
        raise VerbError("agent", what, where=paths.minder_log)


def _read_answer(read_descriptor: int, raise_if_unwanted: Callable[[], None]) -> MinderAnswer:
    text = b""
    deadline = time.monotonic() + MINDER_WITHIN_S
    while not text.endswith(b"\n") and time.monotonic() < deadline:
        raise_if_unwanted()
        if not select.select([read_descriptor], [], [], POLL_S)[0]:
            continue
        part = os.read(read_descriptor, 4096)
        if not part:
            break
        text += part
    try:
        answer = json.loads(text.decode("ascii"))
    except ValueError:
        return {}
    if not isinstance(answer, dict):
        return {}
    port, firewall = answer.get("port"), answer.get("firewall")
    if isinstance(firewall, str):
        return {"firewall": firewall}
    return {"port": port} if isinstance(port, int) else {"ok": bool(answer.get("ok"))}


def _last_log_line(paths: RunPaths) -> str:
    silence = "the minder printed nothing within %g s" % MINDER_WITHIN_S
    text = read_end(paths.minder_log, 2000).decode("utf-8", "replace").strip()
    return (text.splitlines() or [silence])[-1]


# --- the prepare lock


@contextmanager
def hold_prepare_lock(paths: RunPaths, plan_digest: str = "") -> Iterator[None]:
    """Hold the prepare lock of the job, which allows one launch at a time to prepare a run. Raises
    VerbError locked if another launch holds the lock for longer than LOCK_WAIT_S.

    If a launch calls `run.prepare` again because the answer was late, the second call waits up to
    SAME_LAUNCH_WAIT_S for the first call.
    """
    path = _lock_path(paths)
    make_private_folder(os.path.dirname(path))
    owner = ("%s %s" % (paths.run, plan_digest)).encode("ascii", "replace")
    started_at = time.monotonic()
    with FileLock(path) as lock:
        while not lock.acquire():
            waited = time.monotonic() - started_at
            if waited > (SAME_LAUNCH_WAIT_S if read_start(path, 1000) == owner else LOCK_WAIT_S):
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
def hold_prepare_lock_if_free(paths: RunPaths) -> Iterator[bool]:
    """Try to acquire the prepare lock of the job, for the time of the `with` block.

    Yields True if the lock was acquired: then no prepare of the job runs on this host before the
    block ends. Yields False if a prepare is in progress, or if the job has no folder of locks,
    because no prepare has ever begun.
    """
    with FileLock(_lock_path(paths)) as lock:
        yield os.path.isdir(os.path.dirname(_lock_path(paths))) and lock.acquire()


def _lock_path(paths: RunPaths) -> str:
    return os.path.join(layout.locks_dir(paths.workdir, paths.job), "prepare." + paths.host)


# --- other runs


def refuse_other_live_run(paths: RunPaths) -> None:
    """Refuse if another run of the job is alive on this host. Raises VerbError live_run."""
    for other in filter(live_runs.has_live_processes, other_runs_of_host(paths)):
        plan = shown_plan.read_plan(paths.workdir, paths.job, other.run)
        operator = plan["operator"]
        what = "run %s of job %s is alive on this host, launched by %s"
        details = {"run": other.run, "who": operator, "when": plan["created"]}
        what %= (other.run, paths.job, operator)
        raise VerbError("live_run", what, advice="stop_run", details=details)
    _refuse_if_strays_live(paths)


def _refuse_if_strays_live(paths: RunPaths) -> None:
    """Raise VerbError live_run if a task is alive although the folder of its run was removed or
    damaged. Such a task still writes to the same files."""
    whole = [
        run
        for run in run_names(paths.workdir, paths.job)
        if not find_damage(paths.workdir, paths.job, run)
    ]
    for pid in sorted(task_processes.find_processes_by_environment(paths.workdir, paths.job)[0]):
        run = processes.read_environment(pid).get(wire.MARKER)
        if run is not None and run not in whole:  # `run` is None if the process has ended
            what = (
                "process %d is from run %s of job %s, but the run's folder was removed or damaged"
            )
            details = {"run": run, "pid": pid}
            what %= (pid, run, paths.job)
            raise VerbError("live_run", what, advice="stop_run_or_kill", details=details)


# --- run.resume


@audited("status", "resumed")
def resume_run(call: Call) -> Answer:
    """Start a minder if the run has none, for example after a reboot. Tasks that ran before the
    reboot are `lost`. The minder first receives the run's state from another host, and then decides
    which tasks start again.

    Args: run, job.

    Raises VerbError unknown_run, ended (or never committed), superseded (a later run of the job was
    prepared on this host), locked, live_run, port_taken.
    """
    paths = run_status.named_run_paths(call)
    with hold_prepare_lock(paths):
        if liveness.is_live(paths):
            return {"resumed": False}
        if not liveness.is_committed_without_live_process(paths):
            what = "run %s has ended on this host, or was never committed" % paths.run
            raise VerbError("ended", what)
        _refuse_if_superseded(paths)
        refuse_other_live_run(paths)
        start_minder(paths, paths.part())
    return {"resumed": True}


def _refuse_if_superseded(paths: RunPaths) -> None:
    """Refuse if a run of the job was prepared on this host after this run. Raises VerbError
    superseded."""
    prepared = paths.prepared_time()
    for other in other_runs_of_host(paths):
        if other.prepared_time() > prepared:
            what = "a later run, %s, was prepared on this host" % other.run
            raise VerbError("superseded", what, advice="status_of_run", details={"run": other.run})


VERBS = {"run.resume": resume_run}
