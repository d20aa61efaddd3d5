"""`env.state`, `env.make`: Python environments in <workdir>/.envs, each named by what it was made from.

An environment is whole once <name>.json lies beside its folder: one that was interrupted has none, counts for nothing
and is made anew. It is made at its final place, because paths inside it are absolute, and never changed once whole.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from contextlib import contextmanager

from tfdeploy.agent import layout
from tfdeploy.agent.annotations import TYPE_CHECKING, Iterator, Optional, Tuple
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.host.installed import Asked, find_program
from tfdeploy.agent.ownership import check
from tfdeploy.agent.record import NamedTuple
from tfdeploy.agent.run.workdir import make_private
from tfdeploy.agent.serve import env_install, env_record, env_usage
from tfdeploy.agent.serve.call import Call
from tfdeploy.agent.serve.lock import flocked

if TYPE_CHECKING:
    from tfdeploy.agent.answers import EnvState

KEPT = 3  # of each job and host
OLDEST = (3, 6)
POLL_S = 0.1
_ASK = "import sys; print('=tfdeploy-version=' + '.'.join(map(str, sys.version_info[:3])))"


class Wish(NamedTuple):
    """What this host is asked for; `name` follows from the digest of what is wanted and the interpreter."""

    base: str  # the host's interpreter, absolute
    version: str  # of it: "3.11.2"
    name: str
    folder: str


def python_of(folder: str) -> str:
    return os.path.join(folder, "bin", "python")


def name_of(digest: str, version: str, base: str) -> str:
    """Equal where hosts that share a workdir can share the environment too."""
    words = (digest, version, os.uname().machine, os.path.realpath(base))
    return hashlib.sha256("\0".join(words).encode("utf-8", "surrogateescape")).hexdigest()[:16]


def find(workdir: str, digest: str, version: str, base: str) -> Optional[str]:
    """The folder of the environment if it is whole. Whether its interpreter still runs is another question."""
    name = name_of(digest, version, base)
    check(workdir, ".envs/" + name)
    folder = os.path.join(layout.envs_dir(workdir), name)
    return folder if os.path.exists(env_record.of(folder)) and os.path.exists(python_of(folder)) else None


def state(call: Call) -> EnvState:
    """Whether it is there; notes that the job wants it. Raises VerbError no_python, old_python."""
    wish = _wish(call)
    found = _describe(wish)
    if found["ready"]:
        env_usage.mark(wish.folder, call.name("job"))
    return found


def make(call: Call) -> EnvState:
    """Makes it unless it is there. Items: {"line"} of uv or pip, {"waiting"} for who else makes it. Value as of env.state.

    Raises VerbError no_python, old_python, no_venv, setup_failed (details: lines, its last ones), cancelled, disk.
    """
    wish, job = _wish(call), call.name("job")
    make_private(os.path.dirname(wish.folder))
    with _locked(call, wish.folder + ".lock") as lock:
        if not _describe(wish)["ready"]:
            _make(call, wish, lock)
        env_usage.mark(wish.folder, job)
    env_usage.remove_old(call.context.workdir, wish.name, KEPT)
    return _describe(wish)


def _wish(call: Call) -> Wish:
    wanted = call.text("python", "python3")
    base = find_program(wanted)
    version, problem = _version(base) if base else (None, "there is no program %s here" % wanted)
    if base is None or version is None:
        raise VerbError(
            "no_python", problem, next="write `python: PATH` for this host in the inventory, or install python3 there"
        )
    if tuple(map(int, version.split(".")[:2])) < OLDEST:
        raise VerbError(
            "old_python",
            "%s is Python %s, and an environment needs %d.%d or newer" % ((base, version) + OLDEST),
            next="write `python: PATH` of a newer one for this host in the inventory",
        )
    name = name_of(call.name("digest"), version, base)
    check(call.context.workdir, ".envs/" + name)
    return Wish(base, version, name, os.path.join(layout.envs_dir(call.context.workdir), name))


def _version(python: str) -> Tuple[Optional[str], str]:
    """(its version, or None; what is wrong with it)."""
    code, out, err = Asked([python, "-c", _ASK]).answer()
    for line in out.splitlines():
        if line.startswith("=tfdeploy-version="):
            return line[len("=tfdeploy-version=") :], ""
    last = (err or out).splitlines()[-1:] or ["exit code %s" % code]
    return None, "%s does not run Python here: %.300s" % (python, last[0])


def _describe(wish: Wish) -> EnvState:
    record = env_record.read(wish.folder)
    ready = record is not None and _version(python_of(wish.folder))[0] is not None
    return {
        "name": wish.name,
        "folder": wish.folder,
        "python": wish.base,
        "python_version": wish.version,
        "ready": ready,
        "by": None if record is None else record["by"],
        "packages": {} if record is None else record["packages"],
    }


def _make(call: Call, wish: Wish, lock: int) -> None:
    """From nothing, whatever lies there. Leaves nothing behind when it fails."""
    env_usage.remove(wish.folder)
    try:
        by = env_install.install(call, wish.base, wish.version, wish.folder, lock)
        packages = env_install.packages_of(wish.folder)
        env_record.write(wish.folder, by, wish.version, packages)
    except BaseException:
        env_usage.remove(wish.folder)
        raise


@contextmanager
def _locked(call: Call, path: str) -> Iterator[int]:
    """One at a time, also on hosts that share the workdir. What `uv` or `pip` starts holds the lock too: nobody comes
    in between when we are killed and they are not yet."""
    told = False
    while True:
        fd = flocked(path)
        if fd is not None:
            break
        if not told:
            call.item({"waiting": path}, b"")
            told = True
        if call.cancelled.wait(POLL_S):
            raise VerbError("cancelled", "no longer waiting for another setup")
    try:
        yield fd
    finally:
        fcntl.flock(fd, fcntl.LOCK_UN)
        os.close(fd)


VERBS = {"env.state": state, "env.make": make}
