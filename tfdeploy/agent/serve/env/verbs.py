"""`env.state`, `env.make`: Python environments in <workdir>/.envs, each named by what it was made
from.

An environment is whole once <name>.json lies beside its folder; one that was interrupted has none,
and is made again. It is made at its final place, because paths inside it are absolute, and never
changed once whole.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import contextmanager

from tfdeploy.agent import layout
from tfdeploy.agent.annotations import TYPE_CHECKING, Iterator, Optional, Tuple
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.host.flock import FileLock
from tfdeploy.agent.host.installed import Asked, find_program
from tfdeploy.agent.host.private_folder import make_private
from tfdeploy.agent.ownership import check
from tfdeploy.agent.record import NamedTuple
from tfdeploy.agent.serve.call import Call, audited, fenced
from tfdeploy.agent.serve.env import install as env_install
from tfdeploy.agent.serve.env import record as env_record
from tfdeploy.agent.serve.env import usage as env_usage

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Answer

KEPT = 3  # environments of each job and host
OLDEST_PYTHON = (3, 6)
POLL_S = 0.1
_PRINT_VERSION = (
    "import sys; print('=tfdeploy-version=' + '.'.join(map(str, sys.version_info[:3])))"
)


class EnvRequest(NamedTuple):
    """The environment that a call asks for; `name` follows from the digest of its requirements and
    the interpreter."""

    base: str  # the host's interpreter, absolute
    version: str  # of it: "3.11.2"
    name: str
    folder: str


def python_of(folder: str) -> str:
    return os.path.join(folder, "bin", "python")


def name_of(digest: str, version: str, base: str) -> str:
    """Equal on hosts that share a workdir and can share the environment too."""
    words = (digest, version, os.uname().machine, os.path.realpath(base))
    return hashlib.sha256("\0".join(words).encode("utf-8", "surrogateescape")).hexdigest()[:16]


def find(workdir: str, digest: str, version: str, base: str) -> Optional[str]:
    """The folder of the environment if it is whole. Whether its interpreter still runs is another
    question."""
    name = name_of(digest, version, base)
    check(workdir, ".envs/" + name)
    folder = os.path.join(layout.envs_dir(workdir), name)
    return (
        folder
        if os.path.exists(env_record.path_of(folder)) and os.path.exists(python_of(folder))
        else None
    )


def state(call: Call) -> Answer:
    """Say whether the environment made from that digest and that Python is there and runs, and
    record that the job uses it.

    Args: job, digest, python.

    Raises VerbError no_python, old_python.
    """
    request = _requested(call)
    environment = _describe(request)
    if environment["ready"]:
        env_usage.mark(request.folder, call.name("job"))
    return environment


@fenced
@audited("setup", "environment made")
def make(call: Call) -> Answer:
    """Make an environment, unless it is there.

    Args: job, digest, python, files {path: text}, main, wheels? (a data set's name), pins? {name:
    version}.

    Raises VerbError no_python, old_python, no_venv, setup_failed (details lines: its last ones,
    exit_code), cancelled, disk.
    """
    request, job = _requested(call), call.name("job")
    make_private(os.path.dirname(request.folder))
    with _locked(call, request.folder + ".lock") as lock:
        if not _describe(request)["ready"]:
            _make(call, request, lock)
        env_usage.mark(request.folder, job)
    env_usage.remove_old(call.context.workdir, request.name, KEPT)
    return _describe(request)


def _requested(call: Call) -> EnvRequest:
    wanted = call.text("python", "python3")
    base = find_program(wanted)
    version, problem = _version(base) if base else (None, "there is no program %s here" % wanted)
    if base is None or version is None:
        raise VerbError("no_python", problem, advice="name_python")
    if tuple(map(int, version.split(".")[:2])) < OLDEST_PYTHON:
        raise VerbError(
            "old_python",
            "%s is Python %s, and an environment needs %d.%d or newer"
            % ((base, version) + OLDEST_PYTHON),
            advice="newer_python",
        )
    name = name_of(call.name("digest"), version, base)
    check(call.context.workdir, ".envs/" + name)
    return EnvRequest(
        base, version, name, os.path.join(layout.envs_dir(call.context.workdir), name)
    )


def _version(python: str) -> Tuple[Optional[str], str]:
    """(its version, or None; what is wrong with it)."""
    code, out, err = Asked([python, "-c", _PRINT_VERSION]).answer()
    for line in out.splitlines():
        if line.startswith("=tfdeploy-version="):
            return line[len("=tfdeploy-version=") :], ""
    last = (err or out).splitlines()[-1:] or ["exit code %s" % code]
    return None, "%s does not run Python here: %.300s" % (python, last[0])


def _describe(request: EnvRequest) -> Answer:
    record = env_record.read(request.folder)
    ready = record is not None and _version(python_of(request.folder))[0] is not None
    return {
        "name": request.name,
        "folder": request.folder,
        "python": request.base,
        "python_version": request.version,
        "ready": ready,
        "by": None if record is None else record["by"],
        "packages": {} if record is None else record["packages"],
    }


def _make(call: Call, request: EnvRequest, lock: int) -> None:
    """Makes it anew, in place of what lies there. Leaves nothing behind when it fails."""
    env_usage.remove(request.folder)
    try:
        by = env_install.install(call, request.base, request.version, request.folder, lock)
        packages = env_install.packages_of(request.folder)
        env_record.write(request.folder, by, request.version, packages)
    except BaseException:
        env_usage.remove(request.folder)
        raise


@contextmanager
def _locked(call: Call, path: str) -> Iterator[int]:
    """One setup of an environment at a time, also on hosts that share the workdir. uv and pip
    inherit the lock: where serve is killed, it stays held until they have ended."""
    with FileLock(path) as lock:
        if not lock.acquire(0):
            call.item({"waiting": path}, b"")
            while not lock.acquire(POLL_S):
                if call.cancelled.is_set():
                    raise VerbError("cancelled", "no longer waiting for another setup")
        assert lock.descriptor is not None
        yield lock.descriptor


VERBS = {"env.state": state, "env.make": make}
