"""Answers run.prepare: makes a run's folder on this host and starts the run's minder (the process
that manages the run on this host), which holds the run's ports from then on.

No task starts yet. A prepare that fails leaves nothing behind. The host's part of the plan is
checked before it is used. Before any task starts, the program of each task's command must exist on
PATH or among the files of the run. Problems that cannot be seen in the command appear only when the
task starts.
"""

from __future__ import annotations

import difflib
import errno
import json
import os
import shutil
import signal
import threading
import time
from contextlib import contextmanager

from tfdeploy.agent import frames, layout, wire
from tfdeploy.agent.annotations import (
    TYPE_CHECKING,
    Callable,
    Dict,
    Iterator,
    List,
    Mapping,
    Optional,
    Tuple,
)
from tfdeploy.agent.call import NO_LOCKS, Call, audited, checked_name, requires_job_lock
from tfdeploy.agent.errors import VerbError, is_safe_relative_path
from tfdeploy.agent.host import processes
from tfdeploy.agent.host.atomic import read_start
from tfdeploy.agent.host.disk import free_space
from tfdeploy.agent.host.private_folder import make_private_folder
from tfdeploy.agent.ownership import UntrustedPath, check_owners, explain
from tfdeploy.agent.record import NamedTuple
from tfdeploy.agent.run import (
    keep_aside,
    leftovers,
    live_runs,
    liveness,
    shown_plan,
    task_processes,
    uncommitted,
)
from tfdeploy.agent.run import workdir as run_workdir
from tfdeploy.agent.run.find import host_folders
from tfdeploy.agent.run.folder import RunPaths
from tfdeploy.agent.serve.datasets import files as data_files
from tfdeploy.agent.serve.datasets import versions as data_versions
from tfdeploy.agent.serve.release import store as release_store
from tfdeploy.agent.serve.run import minder_start
from tfdeploy.agent.serve.run.ending import remove_run_folder
from tfdeploy.agent.serve.run.minder_start import refuse_other_live_run, start_minder

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Answer, Unchecked

# What is wrong with a task's program: (what is wrong, advice, details), as in VerbError.
Problem = Tuple[str, str, Dict[str, object]]
_COMMON_PROGRAMS = ("python", "python3", "bash", "env")
# How long the end of a session waits until the preparation of a run has been undone. That may take
# some time, because the copy of a large release may have to be removed.
CLEANUP_WAIT_S = 60.0


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
    arguments = read_arguments(call)
    call.secrets = list(arguments.secrets)
    part = checked_host_part(arguments)
    paths = RunPaths(layout.host_dir(call.workdir, part.job, part.run, part.host))
    check_owners(paths.workdir, *layout.job_folders(part.job))
    _refuse_other_owner(paths)
    with minder_start.hold_prepare_lock(paths, part.plan_digest):
        if _reset_unless_prepared(paths, part):
            return {"prepared": True}
        refuse_other_live_run(paths)
        _refuse_damaged_release(paths, part.release)
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
    """Return whether a run without live processes was prepared and then lost its minder: it is in
    the phase `prepared`, and no abort was ordered."""
    return paths.state().phase == "prepared" and not paths.minder_order("abort")


def is_rolled_back(paths: RunPaths) -> bool:
    """Return whether the run was never committed and none of its processes is alive. The name of
    such a run is free again."""
    return not liveness.was_committed(paths) and not live_runs.has_live_processes(paths)


def _remove_other_host_folders(paths: RunPaths, part: wire.HostPart) -> None:
    """Remove the folders that other hosts made in a shared workdir for an earlier run of this name,
    if that run was rolled back."""
    for other in host_folders(paths.workdir, paths.job, paths.run):
        if other.host != paths.host:
            _remove_old_folder_of_other_host(other, part.plan_digest)


def _remove_old_folder_of_other_host(other: RunPaths, plan_digest: str) -> None:
    """Remove the folder that one other host made for an earlier run of this name. If that host is
    preparing the new run now, wait until it has removed the old folder itself. Raises VerbError
    exists."""
    deadline = time.monotonic() + minder_start.LOCK_WAIT_S
    while time.monotonic() < deadline:
        with minder_start.hold_prepare_lock_if_free(other) as is_free:
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


def _refuse_damaged_release(paths: RunPaths, release: str) -> None:
    wrong = release_store.list_damage_and_store_times(paths.workdir, paths.job, release)
    if wrong:
        how = "on this host" if wrong == [release] else "intact; see " + ", ".join(wrong[:3])
        what = "release %s of job %s is not %s" % (release, paths.job, how)
        raise VerbError("no_release", what, advice="sync")


def _refuse_missing_programs(paths: RunPaths, part: wire.HostPart) -> None:
    for spec in part.tasks:
        wrong = find_program_problem(
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
        _claim_run_folder_for_host(paths)
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
            # The minder may be killed at once, because no task has started that it would have to
            # end.
            processes.send_signal(minder, signal.SIGKILL)
        if isinstance(error, OSError) and not isinstance(error, UntrustedPath):
            raise _disk_error(error, paths) from error
        raise


def _claim_run_folder_for_host(paths: RunPaths) -> None:
    """Make this host's folder. While it exists, no host that shares the workdir removes the run's
    folder."""
    with leftovers.acquire_folders_lock(paths):
        uncommitted.mark_uncommitted(paths)
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
    _refuse_missing_programs(paths, part)
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
    what = "no disk space for the run: only %d bytes are free" % free.free_bytes
    return VerbError("disk", what, where=paths.workdir, details=free._asdict())


# --- the arguments


class PrepareArguments(NamedTuple):
    """The arguments of run.prepare, as JSON objects. Only `part` is checked in this module."""

    part: Unchecked
    plan: Unchecked
    secrets: Unchecked
    certs: Unchecked


def read_arguments(call: Call) -> PrepareArguments:
    """Read the arguments from the call's blob, or from the call's fields if it has no blob. Raises
    VerbError bad_part.

    The blob first has the fields of this host, then the fields that are the same for all hosts of
    the run. The latter are the plan and some fields of `part`.
    """
    if not call.blob:
        return PrepareArguments(
            call.table("part"), call.table("plan"), call.table("secrets"), call.table("certs")
        )
    try:
        text, shared_blob = frames.decompress_first(call.blob)
        host_fields, shared_fields = json.loads(text), json.loads(frames.decompress(shared_blob))
        part, plan = dict(host_fields["part"], **shared_fields["part"]), dict(shared_fields["plan"])
        return PrepareArguments(
            part, plan, dict(host_fields.get("secrets") or {}), dict(host_fields.get("certs") or {})
        )
    except (frames.WireError, ValueError, KeyError, TypeError) as error:
        raise VerbError("bad_part", "the plan cannot be read: %s" % error) from error


def checked_host_part(arguments: PrepareArguments) -> wire.HostPart:
    """Check the host's part of the plan, and return it. Raises VerbError bad_part, bad_name."""
    try:
        part = wire.from_wire(wire.HostPart, arguments.part)
    except (TypeError, AttributeError) as error:
        raise VerbError(
            "bad_part", "the host's part of the plan cannot be read: %s" % error
        ) from error
    names = [part.run, part.job, part.host, part.release]
    for name in [*names, *(spec.role for spec in part.tasks), *part.links.values(), *part.parts]:
        checked_name(name)
    for numbers in part.parts.values():
        if not numbers or not all(isinstance(each, int) and each >= 0 for each in numbers):
            raise VerbError("bad_part", "the parts of the host's data sets cannot be read")
    for path in [*part.keep, *part.links, *(spec.cwd for spec in part.tasks if spec.cwd)]:
        if not is_safe_relative_path(path):
            raise VerbError("bad_name", "%r is not a path inside the code" % (path,))
    for spec in part.tasks:
        if spec.task != "%s:%d" % (spec.role, spec.index) or not spec.argv:
            what = "task %r is not %s:%s, or has no command" % (spec.task, spec.role, spec.index)
            raise VerbError("bad_part", what)
        try:
            wire.resolve_words(spec, part.texts)
        except ValueError as error:
            raise VerbError("bad_part", "%s: %s" % (spec.task, error)) from error
    return part


# --- the program of a task


def find_program_problem(
    spec: wire.TaskSpec, cwd: str, inherited_env: Mapping[str, str]
) -> Optional[Problem]:
    """Return what is wrong with the task's program, or None. `inherited_env`: the environment to
    which the task's own variables are added."""
    first = spec.argv[0]
    path = os.pathsep.join(
        spec.path_prepend + [spec.env.get("PATH") or inherited_env.get("PATH") or os.defpath]
    )
    if "/" not in first and shutil.which(first, path=path) is None:
        return _unknown_program_problem(first, path)
    missing = _missing_file(spec.argv, cwd)
    if missing is not None:
        return "%s is not in the code" % missing, "see_command", {}
    if "/" in first and not os.access(os.path.join(cwd, first), os.X_OK):
        return "the file %s is not executable" % first, "make_executable", {"file": first}
    if "/" in first and _names_interpreter_with_return(os.path.join(cwd, first)):
        what = "the first line of %s ends in a carriage return (Windows line ends)" % first
        return what, "unix_line_ends", {"file": first}
    return None


def _names_interpreter_with_return(path: str) -> bool:
    """Return whether the file is a script whose first line, which names its interpreter, ends like
    a line of Windows. Linux would look for an interpreter whose name ends in a carriage return."""
    line, newline, _ = read_start(path, 256).partition(b"\n")
    return line.startswith(b"#!") and line.endswith(b"\r") and bool(newline)


def _unknown_program_problem(name: str, path: str) -> Problem:
    what = "there is no program %s on PATH (%s)" % (name, path)
    for similar in difflib.get_close_matches(name, _COMMON_PROGRAMS, n=1):
        return what, "similar_program", {"program": similar}
    return what, "install_program", {"program": name}


def _missing_file(argv: List[str], cwd: str) -> Optional[str]:
    if "/" in argv[0] and not os.path.exists(os.path.join(cwd, argv[0])):
        return argv[0]
    for word in argv[1:]:
        if not word.startswith("-"):
            is_missing = word.endswith(".py") and not os.path.exists(os.path.join(cwd, word))
            return word if is_missing else None
        if word in ("-m", "-c"):
            break
    return None


# --- whether the run is still wanted


@contextmanager
def abortable_prepare(
    call: Call, paths: RunPaths, plan_digest: str
) -> Iterator[Callable[[], None]]:
    """Guard the preparation of a run, which happens in the `with` block. Yield a function that
    raises VerbError if the run is no longer wanted: `cancelled` if the session has ended, `ended`
    if the run was rolled back. The end of the session waits until the `with` block is left."""
    name = "prepare %s %s" % (paths.job, paths.run)
    session_ended, done = threading.Event(), threading.Event()

    def raise_if_unwanted() -> None:
        if session_ended.is_set() or call.cancelled.is_set():
            what = "the session ended while run %s was prepared" % paths.run
            raise VerbError("cancelled", what)
        if uncommitted.is_abort_requested(paths, plan_digest):
            raise VerbError("ended", "run %s was rolled back while it was prepared" % paths.run)

    def end_session() -> None:
        session_ended.set()
        done.wait(CLEANUP_WAIT_S)

    call.context.closing_functions[name] = end_session
    try:
        yield raise_if_unwanted
    finally:
        done.set()
        call.context.closing_functions.pop(name, None)


VERBS = {"run.prepare": prepare_run}
