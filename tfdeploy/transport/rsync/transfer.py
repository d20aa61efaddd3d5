"""Copy a tree, or some of its files, to or from a folder of one host, with rsync over SSH.

Only this module starts transfers with rsync. The callers decide what is copied. Names that lead out
of the folder are refused.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import lru_cache

from tfdeploy.agent import layout
from tfdeploy.errors import HostFailed, Refused
from tfdeploy.transport.protocols import Session
from tfdeploy.transport.rsync import flaws, messages
from tfdeploy.transport.rsync.process import SUCCESS, Progress, RsyncProcess, run_rsync_with_retries
from tfdeploy.transport.rsync.remote_shell import Start
from tfdeploy.transport.ssh.target import Target

__all__ = ["Progress", "pull", "push"]

# Bytes. A transfer of at least this size gets an ssh process of its own, because paramiko's threads
# for all hosts together use only one core.
SESSION_BYTES = 16 << 20
_MODES = "--chmod=Du=rwx,Dgo=,Fu+rw,Fgo="
_OUTPUT = ("--info=progress2,stats1", "--no-human-readable", "--outbuf=L")


def push(
    target: Target,
    source_root: str,
    names: list[bytes],
    destination: str,
    *,
    in_place: bool = False,
    older_folder: str | None = None,
    on_progress: Progress | None = None,
    session: Session | None = None,
    total_bytes: int = 0,
) -> int:
    """Send some files of a tree to a folder of the host. Return the bytes sent over the network.

    `names`: relative paths of files and links below `source_root`. These are sent even if the
    host's files have the same size and time.
    `in_place`: write each file at its final path, so that received bytes remain even if the host's
    rsync is killed. Otherwise each file is written at a temporary path and then renamed. If files
    at the destination have hard links, they must not be written in place.
    `older_folder`: a folder of the host with older versions of the files. Only what differs from
    the older version is sent.
    `on_progress(bytes done)`: called while bytes are sent.
    `session`: carries the bytes if `total_bytes` is less than SESSION_BYTES. Otherwise a new ssh
    carries them.

    Files get mode 0600 or 0700, folders get mode 0700, and both keep their times. The next transfer
    resumes a file that was interrupted. A file that vanishes or shrinks during the transfer is no
    error, because the caller checks the result. Raises Refused (no rsync), HostFailed
    (disk full, ...), HostUnreachable, Interrupted.
    """
    _check_local()
    argv = push_argv(source_root, destination, in_place=in_place, older_folder=older_folder)
    rsync = run_rsync_with_retries(
        RsyncProcess(target, argv, names, on_progress, start=_start(session, total_bytes))
    )
    if rsync.code not in SUCCESS and not messages.has_only_shrunk(rsync.code, rsync.stderr):
        raise messages.explain(rsync.code, rsync.stderr, target, source_root)
    return rsync.totals[0]


def pull(
    target: Target,
    source_root: str,
    destination: str,
    *,
    names: list[bytes] | None = None,
    on_progress: Progress | None = None,
    max_bytes: int | None = None,
    max_s: float | None = None,
    session: Session | None = None,
    total_bytes: int = 0,
) -> int:
    """Copy a tree of the host, or some of its files, to this machine. Return the bytes received.

    `destination`: a local folder, which must exist.
    `names`: relative paths below `source_root`, or None for the whole tree.
    `max_bytes`, `max_s`: most bytes and most seconds; a transfer that exceeds one of them is ended.
    `session`, `total_bytes`, `on_progress`: see `push`.

    Links are not copied, because rsync could write a later file through a link to a place outside
    the folder. Modes and times are set as in `push`. A file that this machine has with the same
    size and time is not sent again. The next transfer resumes a file that was interrupted. A name
    that no longer exists, or whose file the host's user may not read, is no error, because the
    caller checks the result. Raises Refused (a name that leads out of the folder, no rsync),
    HostFailed (too much, too slow, local disk full), HostUnreachable, Interrupted.
    """
    _check_local()
    for name in names or ():
        check_name(name)
    argv = pull_argv(source_root, destination, reads_file_list=names is not None)
    rsync = run_rsync_with_retries(
        RsyncProcess(
            target,
            argv,
            names,
            on_progress,
            max_bytes,
            max_s,
            destination,
            _start(session, total_bytes),
        )
    )
    if rsync.too_much:
        raise HostFailed(
            f"the host sends more than the expected {max_bytes} bytes",
            where=target.name or target.where,
        )
    if rsync.too_slow:
        raise HostFailed(
            f"the host did not send all files within {max_s:g} s",
            where=target.name or target.where,
            next="type the same command again: it resumes the transfer",
        )
    if rsync.code not in SUCCESS and not messages.has_only_unreadable(rsync.code, rsync.stderr):
        raise messages.explain(rsync.code, rsync.stderr, target, source_root, into=destination)
    return rsync.totals[1]


def _start(session: Session | None, total_bytes: int) -> Start | None:
    """Return a function that starts a command over the session, or None to start it with ssh."""
    return session.start if session is not None and total_bytes < SESSION_BYTES else None


def check_name(name: bytes) -> None:
    """Raise Refused if the name is not a relative path, or leads out of the folder."""
    if any(component in (b"", b".", b"..") for component in name.split(b"/")) or b"\0" in name:
        raise Refused(f"{os.fsdecode(name)!r} leads out of the requested folder")


def push_argv(
    source_root: str, destination: str, *, in_place: bool, older_folder: str | None = None
) -> list[str]:
    """Return the rsync command of a push, without the remote shell.

    Raises Refused if a path is not absolute.
    """
    _check_paths(source_root, destination)
    command = ["rsync", "-lpt", "-s", _MODES, *_OUTPUT]
    command += ["--files-from=-", "--from0", "--ignore-times"]
    command += ["--inplace"] if in_place else [f"--partial-dir={layout.PARTIAL}"]
    command += [f"--compare-dest={older_folder}"] if older_folder is not None else []
    return [*command, "--", source_root.rstrip("/") + "/", f"target:{destination.rstrip('/')}/"]


def pull_argv(source_root: str, destination: str, *, reads_file_list: bool) -> list[str]:
    """Return the rsync command of a pull, without the remote shell.

    Raises Refused if a path is not absolute.
    """
    _check_paths(source_root, destination)
    command = ["rsync", "-pt", "-s", _MODES, f"--partial-dir={layout.PARTIAL}", *_OUTPUT]
    command += ["--files-from=-", "--from0", "--ignore-missing-args"] if reads_file_list else ["-r"]
    return [*command, "--", f"target:{source_root.rstrip('/')}/", destination.rstrip("/") + "/"]


def _check_paths(*paths: str) -> None:
    """Raise Refused if a path is not absolute, or has a line break or NUL."""
    for path in paths:
        if not path.startswith("/") or "\0" in path or "\n" in path:
            raise Refused(f"{path!r} is not an absolute path, or has a line break or NUL")


@lru_cache(maxsize=1)
def _check_local() -> None:
    """Raise Refused if this machine has no ssh or no rsync, or if its rsync is older than 3.1.

    The program openrsync is refused too. A successful check is not repeated.
    """
    for program, package in (("rsync", "rsync"), ("ssh", "openssh-client")):
        if shutil.which(program) is None:
            raise Refused(
                f"{program} is missing on this machine", next=f"install the package {package}"
            )
    version_text = subprocess.run(["rsync", "--version"], capture_output=True, check=False).stdout
    version = flaws.version_of(version_text)
    if version is None or version < (3, 1) or b"openrsync" in version_text:
        first = (
            version_text.decode(errors="replace").splitlines()[0]
            if version_text
            else "it says nothing"
        )
        raise Refused(
            f"rsync 3.1 or newer is needed on this machine: {first[:100]}",
            next="install the package rsync",
        )
