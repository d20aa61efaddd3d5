"""Answers the verb `audit`. Sends the audit log of this host. Also lists what is left on this host
although no run needs it: secret files, leftovers of interrupted operations, foreign files, and
processes. Changes nothing."""

from __future__ import annotations

import itertools
import os

from tfdeploy.agent import frames, layout, wire
from tfdeploy.agent.annotations import TYPE_CHECKING, Iterator, List, Tuple
from tfdeploy.agent.call import Call
from tfdeploy.agent.errors import is_safe_name
from tfdeploy.agent.host import installed, processes, removal
from tfdeploy.agent.host.atomic import list_names
from tfdeploy.agent.host.flock import is_locked
from tfdeploy.agent.run import (
    check_files,
    liveness,
    old_secrets,
    over,
    secret_files,
    task_processes,
    uncommitted,
)
from tfdeploy.agent.run.file_origin import is_own_file, read_origin
from tfdeploy.agent.run.find import all_host_folders, jobs_with_runs, run_names
from tfdeploy.agent.run.folder import RunPaths
from tfdeploy.agent.run.secret_files import SecretPaths
from tfdeploy.agent.serve import audit_log

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Answer

# Limits of the lists in one answer.
MOST_LEFT = 1000
MOST_HELD = 10_000
MOST_ADMITTED = 1000
_OURS = (".agent", layout.UNCOMMITTED, ".envs", layout.AUDIT)
_OF_JOB = ("releases", "data", "keep", "locks", "fences", "runs")

Leftover = Tuple[str, str]  # kind, path


def report_audit(call: Call) -> Answer:
    """Send the audit log of this host, the older file first, and list what is left on this host
    although no run needs it.

    Args: job?, run? (list only what is left of this run), python? (report the TensorFlow of this
    interpreter), secret_files? (where else to look for secret files: {job: {"code": [paths below
    the job's code], "data": ["DATA_SET/PATH"]}}).
    """
    workdir, secret = call.workdir, SecretPaths(call)
    job, run, inventory_name = call.text("job"), call.text("run"), call.host
    for content in audit_log.read_logs(workdir):
        call.item({}, frames.compress(content))
    python = installed.find_program(call.text("python")) if call.flag("python") else None
    program = installed.start_python_query(python)
    host_folders: List[RunPaths] = []
    if run:
        host_folders = _own_host_folders(workdir, call.job, call.name("run"), inventory_name)
        secrets = secret_files.paths_in_run(workdir, job, run, secret)
        leftovers = _run_leftovers(workdir, job, run, inventory_name)
    else:
        secrets = itertools.chain.from_iterable(
            secret_files.paths_in_job(workdir, name, secret) for name in secret.jobs
        )
        leftovers = _workdir_leftovers(workdir, inventory_name)
    rows = itertools.chain(
        (("secret file", path) for path in secrets), leftovers, _stray_processes(workdir, job, run)
    )
    return {
        "admitted": _admitted_addresses(host_folders),
        "left": [{"kind": kind, "path": path} for kind, path in itertools.islice(rows, MOST_LEFT)],
        "held": _runs_with_secrets(workdir, job, run, inventory_name),
        "tensorflow": installed.read_python_facts(program, "")[0]["tensorflow"],
    }


# --- runs


def _own_host_folders(workdir: str, job: str, run: str, inventory_name: str) -> List[RunPaths]:
    """Return this machine's folders of the run. Folders of other hosts that share the workdir are
    left out, because this machine cannot see whether processes of those hosts are alive.
    `inventory_name`: this machine's name in the session's inventory, or "" if the session did not
    say."""
    folders = all_host_folders(layout.run_dir(workdir, job, run))
    named = [paths for paths in folders if paths.host == inventory_name]
    if named or len(folders) < 2:
        return named or folders
    return [
        paths
        for paths in folders
        if is_own_file(read_origin(paths.state_file), paths.host, inventory_name)
    ]


def _runs_with_secrets(workdir: str, job: str, run: str, inventory_name: str) -> List[Answer]:
    """List the runs whose secrets are still stored on this host."""
    secrets: List[Answer] = []
    for each in [job] if run else jobs_with_runs(workdir):
        for name in [run] if run else run_names(workdir, each):
            for paths in _own_host_folders(workdir, each, name, inventory_name):
                if old_secrets.list_secret_files(paths) and len(secrets) < MOST_HELD:
                    secrets.append({"job": each, "run": name, "host": paths.host})
    return secrets


def _run_leftovers(workdir: str, job: str, run: str, inventory_name: str) -> Iterator[Leftover]:
    run_dir = layout.run_dir(workdir, job, run)
    if not os.path.isdir(run_dir):
        return
    host_folders = _own_host_folders(workdir, job, run, inventory_name)
    for paths in host_folders:
        if _is_run_busy(paths):
            continue
        yield from (("secret", path) for path in old_secrets.list_secret_files(paths))
        if not paths.has_readable_part():
            yield "half a run", paths.host_dir
        elif uncommitted.is_uncommitted(paths):
            yield "a launch that did not end", paths.host_dir
    if not any(_is_run_busy(paths) for paths in host_folders):
        yield from _incomplete_or_foreign_entries(run_dir, over.RUN_ENTRIES)
    if not list_names(os.path.join(run_dir, "hosts")) and not _is_job_locked(workdir, job):
        yield "half a run", run_dir


def _is_run_busy(paths: RunPaths) -> bool:
    """Return whether a launch is preparing this host's folder of a run, or the run is alive on this
    host. A minder (the agent's daemon for the run) that only informs other hosts about the run's
    end does not count, because it no longer needs any files."""
    if check_files.find_damage(paths):
        return is_locked(paths.minder_lock) or (
            uncommitted.is_uncommitted(paths) and _is_job_locked(paths.workdir, paths.job)
        )
    return paths.state().phase != "ended" and (
        is_locked(paths.minder_lock) or liveness.is_live(paths)
    )


def _is_job_locked(workdir: str, job: str) -> bool:
    folder = layout.locks_dir(workdir, job)
    return any(
        is_locked(os.path.join(folder, name))
        for name in list_names(folder)
        if name.endswith(".lock")
    )


def _admitted_addresses(host_folders: List[RunPaths]) -> List[Answer]:
    admissions: List[Answer] = []
    for paths in host_folders:
        if not check_files.find_damage(paths):
            admissions += [
                {"address": address, "of": host}
                for address, host in sorted(paths.state().admitted.items())
            ]
    return admissions[:MOST_ADMITTED]


# --- the workdir


def _workdir_leftovers(workdir: str, inventory_name: str) -> Iterator[Leftover]:
    for name in list_names(workdir):
        path = os.path.join(workdir, name)
        if not removal.is_own_or_root(path):
            yield from _foreign_leftover_if_present(path)
        elif name.startswith(removal.GONE):
            yield "half", path
        elif is_safe_name(name) and any(
            os.path.isdir(os.path.join(path, each)) for each in _OF_JOB
        ):
            yield from _job_leftovers(workdir, name, inventory_name)
        elif name not in _OURS:
            yield "foreign", path


def _job_leftovers(workdir: str, job: str, inventory_name: str) -> Iterator[Leftover]:
    job_dir = layout.job_dir(workdir, job)
    for name in list_names(job_dir):
        if name not in _OF_JOB or not removal.is_own_or_root(os.path.join(job_dir, name)):
            yield from _foreign_leftover_if_present(os.path.join(job_dir, name))
    if not _is_job_locked(workdir, job):
        for name in ("releases", "runs", "data"):
            yield from _incomplete_or_foreign_entries(os.path.join(job_dir, name), ())
    for run in run_names(workdir, job):
        yield from _run_leftovers(workdir, job, run, inventory_name)


def _incomplete_or_foreign_entries(
    folder: str, expected_names: Tuple[str, ...]
) -> Iterator[Leftover]:
    """Yield the entries of this folder that an interrupted operation left incomplete. If
    `expected_names` is given, also yield the entries whose names are not in `expected_names`."""
    for name in list_names(folder):
        if over.is_incomplete_name(name) or (
            expected_names
            and (name.startswith(over.INCOMPLETE_RUN_PREFIXES) or name.endswith(".tmp"))
        ):
            yield "half", os.path.join(folder, name)
        elif (
            expected_names
            and name not in expected_names
            and not name.startswith(over.SESSION_PREFIXES)
        ):
            yield "foreign", os.path.join(folder, name)


def _foreign_leftover_if_present(path: str) -> Iterator[Leftover]:
    if os.path.lexists(path):  # another process may have removed the entry after it was listed
        yield "foreign", path


# --- processes


def _stray_processes(workdir: str, job: str, run: str) -> Iterator[Leftover]:
    """Yield the processes whose environment names a run that has ended on this host, or a run whose
    folder is gone. If `run` is given, yield only processes of that run."""
    workdir_prefix = os.path.realpath(workdir) + os.sep
    for pid in sorted(processes.all_processes()):
        marks = processes.read_environment(pid)
        folder, name = marks.get(task_processes.FOLDER_MARKER, ""), marks.get(wire.MARKER)
        if (
            name is None
            or not folder.startswith(workdir_prefix)
            or (run and (job, run) != (marks.get("TFDEPLOY_TASK_JOB"), name))
        ):
            continue
        paths = RunPaths(folder)
        if not paths.has_readable_part() or paths.state().phase == "ended":
            yield "process", "/proc/%d" % pid


VERBS = {"audit": report_audit}
