"""Answers `env.state` and `env.make`: makes Python environments in <workdir>/.envs, each named by a
hash of its inputs.

An environment is complete once <name>.json exists beside its folder. If making an environment was
interrupted, there is no such file, and the environment is made again. An environment is made at its
final path, because paths inside it are absolute, and never changes once it is complete.
"""

from __future__ import annotations

import os
from contextlib import contextmanager

from tfdeploy.agent.annotations import TYPE_CHECKING, Iterator, Optional, Tuple
from tfdeploy.agent.call import Call, audited, requires_job_lock
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.host.flock import FileLock
from tfdeploy.agent.host.installed import StartedProgram, find_program
from tfdeploy.agent.host.private_folder import make_private_folder
from tfdeploy.agent.record import NamedTuple
from tfdeploy.agent.serve.env import environments
from tfdeploy.agent.serve.env import install as env_install
from tfdeploy.agent.serve.env.environments import checked_folder, environment_name, interpreter_path

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Answer, EnvironmentRecord

KEPT = 3  # for each job and host, this many of the newest environments are kept
OLDEST_PYTHON = (3, 6)
POLL_S = 0.1
_PRINT_VERSION = (
    "import sys; print('=tfdeploy-version=' + '.'.join(map(str, sys.version_info[:3])))"
)


class EnvRequest(NamedTuple):
    """The environment that a call asks for. `name`: a hash that depends on the requirements and on
    the interpreter (see environment_name)."""

    base_python: str  # absolute path of the host's interpreter
    python_version: str  # version of the interpreter, such as "3.11.2"
    name: str
    folder: str


def report_state(call: Call) -> Answer:
    """Report whether this host has the environment for this digest and this Python. An environment
    whose interpreter cannot be started does not count. If this host has the environment, record
    that the job uses it.

    Args: job, digest, python.

    Raises VerbError no_python, old_python.
    """
    request = _parse_request(call)
    environment = _describe_environment(request)
    if environment["ready"]:
        environments.mark_used(request.folder, call.job)
    return environment


@requires_job_lock
@audited("setup", "environment made")
def make_environment(call: Call) -> Answer:
    """Make a Python environment, unless it exists.

    Args: job, digest, python, files {path: text}, main, wheels? (a data set's name), pins? {name:
    version}.

    Raises VerbError no_python, old_python, no_venv, cancelled, disk, setup_failed (its details are
    `lines`, the last lines of the installer, and `exit_code`).
    """
    request, job = _parse_request(call), call.job
    make_private_folder(os.path.dirname(request.folder))
    with _environment_lock(call, request.folder + ".lock") as lock:
        if not _describe_environment(request)["ready"]:
            _replace_environment(call, request, lock)
        environments.mark_used(request.folder, job)
    environments.remove_old_environments(call.workdir, request.name, KEPT)
    return _describe_environment(request)


def _parse_request(call: Call) -> EnvRequest:
    wanted = call.text("python", "python3")
    base_python, version, problem = (
        find_program(wanted),
        None,
        "there is no program %s here" % wanted,
    )
    if base_python is not None:
        version, problem = _read_version(base_python)
    if base_python is None or version is None:
        raise VerbError("no_python", problem, advice="name_python")
    if tuple(map(int, version.split(".")[:2])) < OLDEST_PYTHON:
        raise VerbError(
            "old_python",
            "%s is Python %s, and an environment needs %d.%d or newer"
            % ((base_python, version) + OLDEST_PYTHON),
            advice="newer_python",
        )
    name = environment_name(call.name("digest"), version, base_python)
    return EnvRequest(base_python, version, name, checked_folder(call.workdir, name))


def _read_version(python: str) -> Tuple[Optional[str], str]:
    """Return (version, problem) of this Python interpreter. If the interpreter cannot be started,
    the version is None, and the problem says why."""
    program = StartedProgram([python, "-c", _PRINT_VERSION])
    version, problem = program.read_marked_line("=tfdeploy-version=")
    return version, "%s does not run Python here: %s" % (python, problem)


def _describe_environment(request: EnvRequest) -> Answer:
    record = environments.read_record(request.folder)
    ready = record is not None and _read_version(interpreter_path(request.folder))[0] is not None
    return {
        "name": request.name,
        "folder": request.folder,
        "python": request.base_python,
        "python_version": request.python_version,
        "ready": ready,
        "by": None if record is None else record["by"],
        "packages": {} if record is None else record["packages"],
    }


def _replace_environment(call: Call, request: EnvRequest, lock: int) -> None:
    """Replace what is at the environment's path by a new environment. If that fails, leave nothing
    behind."""
    environments.remove_environment(request.folder)
    try:
        by = env_install.install_requirements(
            call, request.base_python, request.python_version, request.folder, lock
        )
        packages = env_install.installed_packages(request.folder)
        record: EnvironmentRecord = {
            "by": by,
            "python": request.python_version,
            "packages": packages,
        }
        environments.write_record(request.folder, record)
    except BaseException:
        environments.remove_environment(request.folder)
        raise


@contextmanager
def _environment_lock(call: Call, path: str) -> Iterator[int]:
    """Hold the environment's lock, which allows one setup of the environment at a time on all hosts
    that share the workdir. uv and pip inherit the lock, so it stays held until they have ended,
    even if serve is killed."""
    with FileLock(path) as lock:
        if not lock.acquire(0):
            call.item({"waiting": path}, b"")
            while not lock.acquire(POLL_S):
                if call.cancelled.is_set():
                    raise VerbError(
                        "cancelled", "the wait for another setup of this environment was cancelled"
                    )
        assert lock.descriptor is not None
        yield lock.descriptor


VERBS = {"env.state": report_state, "env.make": make_environment}
