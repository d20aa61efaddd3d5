"""Answers run.prepare: makes a run's folder on this host and starts the run's minder (the process
that manages the run on this host), which holds the run's ports from then on.

No task starts yet. A prepare that fails leaves nothing behind.
"""

from __future__ import annotations

import errno
import os
import signal
import time

from tfdeploy.agent import layout, wire
from tfdeploy.agent.annotations import TYPE_CHECKING, Callable
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.host import processes
from tfdeploy.agent.host.disk import free_space
from tfdeploy.agent.host.flock import is_locked
from tfdeploy.agent.host.private_folder import make_private_folder
from tfdeploy.agent.ownership import UntrustedPath, check_owners, explain
from tfdeploy.agent.run import (
    in_doubt,
    keep_aside,
    leftovers,
    live_runs,
    liveness,
    shown_plan,
    task_processes,
)
from tfdeploy.agent.run import workdir as run_workdir
from tfdeploy.agent.run.find import find_damage, host_folders, other_runs_of_host, run_names
from tfdeploy.agent.run.folder import RunPaths
from tfdeploy.agent.serve.call import NO_LOCKS, Call, audited, requires_job_lock
from tfdeploy.agent.serve.datasets import files as data_files
from tfdeploy.agent.serve.datasets import versions as data_versions
from tfdeploy.agent.serve.release import store as release_store
from tfdeploy.agent.serve.run import prepare_args, prepare_lock
from tfdeploy.agent.serve.run import program as run_program
from tfdeploy.agent.serve.run.minder_start import start_minder
from tfdeploy.agent.serve.run.prepare_args import PrepareArguments
from tfdeploy.agent.serve.run.prepare_guard import abortable_prepare

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Answer

PEERS_INFORMED_S = 3.0  # how long a minder that has ended its run may still inform other hosts


@requires_job_lock
@audited("launch", "prepared")
def prepare_run(call: Call) -> Answer:
    """Prepare the run that `part` describes. If the same run and plan digest are sent again, the
    second call waits for the first one, and returns the same answer.

    Args: run, job; blob: zlib of the JSON {"part": the fields of HostPart that differ between
    hosts, "secrets": {NAME: text}, "certs": {"ca", "cert", "key"} (PEM)}, followed by zlib of the
    JSON {"plan": plan.json, "part": the fields of HostPart that are the same for all hosts}.

    Raises VerbError bad_part, bad_name, refused, locked, exists, live_run, no_release, no_program,
    port_taken (details port, owner), agent, disk, cancelled, ended.
    """
    arguments = prepare_args.read_arguments(call)
    call.secrets = list(arguments.secrets)
    part = prepare_args.checked_host_part(arguments)
    paths = RunPaths(layout.host_dir(call.workdir, part.job, part.run, part.host))
    check_owners(paths.workdir, *layout.job_folders(part.job))
    _refuse_other_owner(paths)
    with prepare_lock.hold(paths, part.plan_digest):
        if _reset_unless_prepared(paths, part):
            return {"prepared": True}
        refuse_other_live_run(paths)
        _check_release(paths, part.release)
        with abortable_prepare(call, paths, part.plan_digest) as raise_if_unwanted:
            _prepare_folder(paths, part, arguments, raise_if_unwanted)
    return {"prepared": True}


# --- checks whether the run may be prepared


def _refuse_other_owner(paths: RunPaths) -> None:
    try:
        paths.check_owner("tasks")
    except UntrustedPath as error:
        what, advice, details = explain(error)
        details = {**details, "or_another_run_name": True}
        raise VerbError(
            "refused", what, where=error.path, advice=advice, details=details
        ) from error


def _reset_unless_prepared(paths: RunPaths, part: wire.HostPart) -> bool:
    """Return whether this run has already been prepared from the same plan. If not, remove what an
    interrupted prepare left."""
    digest = paths.plan_digest()
    same = digest == part.plan_digest
    if same and liveness.is_live(paths) and not paths.minder_order("abort"):
        return True
    if digest is None and liveness.was_committed(paths):
        raise _exists_error(paths)  # the run is committed, but its part.json is missing or damaged
    if digest is not None and (not _lost_its_minder(paths) if same else not is_rolled_back(paths)):
        raise _exists_error(paths)
    if os.path.isdir(paths.host_dir) or (
        os.path.isdir(paths.cwd) and not os.path.isdir(os.path.dirname(paths.host_dir))
    ):
        remove_run_folder(paths)
    _remove_other_host_folders(paths, part)
    return False


def _exists_error(paths: RunPaths) -> VerbError:
    what = "run %s exists already" % paths.run
    return VerbError("exists", what, where=paths.run_dir, advice="another_run_name")


def _lost_its_minder(paths: RunPaths) -> bool:
    """Return whether the run was prepared, and its minder has died since then."""
    return paths.state().phase == "prepared" and not paths.minder_order("abort")


def is_rolled_back(paths: RunPaths) -> bool:
    """Return whether the run was never committed and none of its processes is alive. The name of
    such a run is free again."""
    return not liveness.was_committed(paths) and not live_runs.has_live_processes(paths)


def remove_run_folder(paths: RunPaths) -> None:
    """Remove the run's folder. Its minder writes to the folder, so wait up to PEERS_INFORMED_S
    until the minder has informed other hosts and ended, and kill it after that time."""
    deadline = time.monotonic() + PEERS_INFORMED_S
    while is_locked(paths.minder_lock) and time.monotonic() < deadline:
        time.sleep(0.02)
    minder = task_processes.read_minder(paths)
    if minder is not None:
        processes.send_signal(minder, signal.SIGKILL)
    leftovers.remove_run(paths)


def _remove_other_host_folders(paths: RunPaths, part: wire.HostPart) -> None:
    """Remove the folders that other hosts made in a shared workdir for an earlier run of this name,
    if that run was rolled back."""
    for other in host_folders(paths.workdir, paths.job, paths.run):
        if other.host != paths.host:
            _remove_other_host_folder(other, part.plan_digest)


def _remove_other_host_folder(other: RunPaths, plan_digest: str) -> None:
    """Remove the folder that one other host made for an earlier run of this name. If that host is
    preparing the new run now, wait until it has removed the old folder itself. Raises VerbError
    exists."""
    deadline = time.monotonic() + prepare_lock.WAIT_S
    while time.monotonic() < deadline:
        with prepare_lock.hold_if_free(other) as is_free:
            digest = other.plan_digest()
            if not os.path.isdir(other.host_dir) or digest == plan_digest:
                return
            if is_free:
                has_not_ended = digest is not None and other.state().phase != "ended"
                if has_not_ended or liveness.was_committed(other):
                    break
                leftovers.remove_run(other)
                return
            if digest is None:
                # The other host has removed its old folder, and is preparing a new one for this
                # launch.
                return
        time.sleep(0.02)
    raise _exists_error(other)


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


def _check_release(paths: RunPaths, release: str) -> None:
    wrong = release_store.list_damaged_paths(paths.workdir, paths.job, release)
    if wrong:
        how = "on this host" if wrong == [release] else "intact; see " + ", ".join(wrong[:3])
        what = "release %s of job %s is not %s" % (release, paths.job, how)
        raise VerbError("no_release", what, advice="sync")


def _check_programs(paths: RunPaths, part: wire.HostPart) -> None:
    for spec in part.tasks:
        wrong = run_program.find_program_problem(
            wire.resolve_words(spec, part.texts), paths.task_cwd(spec), os.environ
        )
        if wrong is not None:
            what, advice, details = wrong
            where = "command of %s on %s" % (spec.task, part.host)
            raise VerbError("no_program", what, where=where, advice=advice, details=details)


# --- preparing the folder


def _prepare_folder(
    paths: RunPaths,
    part: wire.HostPart,
    arguments: PrepareArguments,
    raise_if_unwanted: Callable[[], None],
) -> None:
    try:
        _make_host_folder(paths)
        if part.fresh:
            keep_aside.rename_keep_aside(paths, part.keep)
        _make_folders(paths, part, arguments, raise_if_unwanted)
        raise_if_unwanted()
        _write_secrets(paths, part, arguments)
        start_minder(paths, part, raise_if_unwanted)
        raise_if_unwanted()
    except BaseException as error:
        minder = task_processes.read_minder(paths)
        leftovers.remove_run(paths)
        if minder is not None:
            # This is safe, because no task has started.
            processes.send_signal(minder, signal.SIGKILL)
        if isinstance(error, OSError) and not isinstance(error, UntrustedPath):
            raise _disk_error(error, paths) from error
        raise


def _make_host_folder(paths: RunPaths) -> None:
    """Make this host's folder. While it exists, no host that shares the workdir removes the run's
    folder."""
    with leftovers.acquire_folders_lock(paths):
        in_doubt.mark_in_doubt(paths)
        make_private_folder(paths.host_dir)


def _make_folders(
    paths: RunPaths,
    part: wire.HostPart,
    arguments: PrepareArguments,
    raise_if_unwanted: Callable[[], None],
) -> None:
    data_versions.install_next_versions(paths.workdir, part.job)
    run_workdir.make_cwd(paths, part.release, part.keep, part.links, raise_if_unwanted)
    data_files.make_part_folders(paths, part.parts)
    for spec in part.tasks:
        make_private_folder(paths.task_dir(spec.task))
    _check_programs(paths, part)
    shown_plan.write_plan(paths.workdir, paths.job, paths.run, arguments.plan)
    paths.reserve_disk_space(part)
    try:
        os.mkfifo(paths.file(layout.MINDER_FIFO), 0o600)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP):
            raise
        what = "%s: %s" % (paths.workdir, error.strerror)
        raise VerbError("refused", what, where=paths.workdir, advice=NO_LOCKS) from error


def _write_secrets(paths: RunPaths, part: wire.HostPart, arguments: PrepareArguments) -> None:
    """Write the secrets after everything else, so that none are left if this process dies earlier.
    Then write part.json, which marks the folder as complete."""
    paths.write_secrets(arguments.secrets, arguments.certs)
    paths.write_part(part)


def _disk_error(error: OSError, paths: RunPaths) -> VerbError:
    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
        what = "the run's folder cannot be made: %s" % error
        return VerbError("disk", what, where=error.filename or paths.run_dir)
    free = free_space(paths.workdir)
    what = "no room for the run: %d bytes are free" % free.free_bytes
    return VerbError("disk", what, where=paths.workdir, details=free._asdict())
