"""Check who owns the workdir and everything below it. tfdeploy never reads, runs or writes a file
that another user has created, owns or may change.

From the workdir down, each folder is opened relative to its parent, and links are not followed. The
source of this module is also run on hosts that have no agent yet, after the source of seen.py. So
it imports no other module of tfdeploy except names for annotations.
"""

from __future__ import annotations

import errno
import os
import stat
import time

from tfdeploy.agent.annotations import Any, Dict, List, Optional, Tuple
from tfdeploy.agent.seen import (
    AGENTS,
    OTHERS_WRITE,
    OVERFLOW_UIDS,
    SEEN,
    can_others_replace_entries,
    is_agent_unchanged,
    is_seen_file,
    lstat_ancestors_from_root,
    read_file_stamps,
)

try:
    # The module hashlib is avoided, because it loads OpenSSL, which adds 3 ms to each session.
    from _blake2 import blake2b
except ImportError:
    from hashlib import blake2b

_FLAGS = {
    stat.S_IFDIR: os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW,
    stat.S_IFREG: os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK,
}
# File systems have coarse clocks, so two changes of a file within this many nanoseconds may leave
# the same time in it.
_RACY_NS = 2_000_000_000


class UntrustedPath(PermissionError):
    """Another user owns `path` or may change it. `why`: "mapped" (the file server changes the
    owners of files), "damaged", or one of the keys of the dict in mending.describe_problem, which
    describes each problem in words."""

    def __init__(
        self, why: str, path: str, workdir: str, about: Optional[os.stat_result] = None
    ) -> None:
        super().__init__(1, why, path)
        self.why, self.path, self.workdir, self.about = why, path, workdir, about

    def __str__(self) -> str:
        return explain(self)[0]


def explain(error: UntrustedPath) -> Tuple[str, str, Dict[str, object]]:
    """Return (description of the problem, name of a text in model/answers/failures.py, details for
    that text). These are arguments of VerbError."""
    # Imported only here, so that a start without an error does not load it.
    from tfdeploy.agent import mending

    return mending.describe_problem(error.why, error.path, error.workdir, error.about)


def check_owners(workdir: str, *relative_paths: str) -> None:
    """Check the owner of the workdir, and of each path in `relative_paths` (relative to the
    workdir). Paths that do not exist are not checked. Raises UntrustedPath, OSError."""
    try:
        top = open_workdir(workdir)
    except FileNotFoundError:
        return
    try:
        for path in relative_paths:
            names = [name for name in path.split("/") if name]
            try:
                os.close(_open_below(os.dup(top), workdir, names))
            except FileNotFoundError:
                continue
    finally:
        os.close(top)


def open_workdir(workdir: str) -> int:
    """Check the owner of the workdir, open it, and return its descriptor. Raises UntrustedPath,
    FileNotFoundError, OSError."""
    _check_folders_above(workdir)
    return _open_checked(workdir, workdir, workdir)


def make_workdir(workdir: str) -> None:
    """Create the workdir and missing folders above it, so that only this user may use them. A
    workdir that exists is not changed. Raises UntrustedPath, OSError."""
    _check_folders_above(workdir)
    parent = os.path.dirname(workdir)
    if not os.path.isdir(parent):
        make_workdir(parent)
    try:
        os.mkdir(workdir, 0o700)
    except FileExistsError:
        return
    about = os.lstat(workdir)
    # This process has just created the folder. So if another user seems to own it, the file server
    # changes the owners of files.
    if about.st_uid != os.geteuid():
        os.rmdir(workdir)
        raise UntrustedPath("mapped", workdir, workdir, about)


def has_agent(workdir: str, name: str) -> bool:
    """Return whether the agent `name` is installed and complete. If it is missing or damaged,
    return False; the caller may then install it. Raises UntrustedPath, OSError."""
    if is_agent_unchanged(workdir, name):
        return True
    folder = os.path.join(workdir, AGENTS, name)
    # The stamps (path, inode, size and ctime of each file, see seen.read_file_stamps) are read
    # before the files. If a file changes after that, its stamp will differ at the next start.
    stamps = _reliable_stamps(folder)
    try:
        content = _read_agent(workdir, name)
    except FileNotFoundError:
        return False
    if agent_name(content) != name:
        return False
    _write_stamps(stamps, folder)
    return True


def check_agent(folder: str) -> None:
    """Check the agent in `folder`, which is <workdir>/.agent/<name>. In tests the agent runs from
    the source tree, which is not checked. Raises UntrustedPath, OSError."""
    parent, name = os.path.split(folder)
    workdir, agents = os.path.split(parent)
    if agents == AGENTS and not has_agent(workdir, name):
        raise UntrustedPath("damaged", folder, workdir)


def check_owner(file_stat: os.stat_result, path: str, workdir: str) -> None:
    """Check that `path` belongs to this user or root, and that no other user may write to it.
    `path` may be a file, a folder, a link or of any other type. Raises UntrustedPath."""
    _check_entry(file_stat, path, workdir, stat.S_IFMT(file_stat.st_mode), "names")


def check_made_by_us(path: str, workdir: str) -> None:
    """Check that `path` is a folder, not a link, and belongs to this user or root. Its mode does
    not matter. Raises UntrustedPath, OSError."""
    _check_entry(os.lstat(path), path, workdir, stat.S_IFDIR, "mode")


def agent_name(content_by_path: Dict[str, bytes]) -> str:
    """Return the name of an agent, which is a hash of the names, lengths and contents of its
    files."""
    digest = blake2b(digest_size=16)
    for name in sorted(content_by_path):
        digest.update(b"%s\0%d\0" % (os.fsencode(name), len(content_by_path[name])))
        digest.update(content_by_path[name])
    return str(digest.hexdigest())


def _reliable_stamps(folder: str) -> str:
    """Return the stamps of the agent's files (see seen.read_file_stamps). Return "" if a file has
    changed so recently that another change might not be visible in its stamp."""
    try:
        stamps_text = read_file_stamps(folder, (0, os.geteuid()))
    except OSError:
        return ""  # The full check, which comes next, will find and report what is wrong.
    newest = max((int(line.rsplit(" ", 1)[1]) for line in stamps_text.splitlines()), default=0)
    return stamps_text if newest < time.time_ns() - _RACY_NS else ""


def _write_stamps(stamps_text: str, folder: str) -> None:
    if not stamps_text:
        return
    fresh = os.path.join(folder, "%s.%d" % (SEEN, os.getpid()))
    try:
        file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with open(file, "w", errors="surrogateescape") as record:
            record.write(stamps_text)
        os.rename(fresh, os.path.join(folder, SEEN))
    except OSError:
        pass  # for example, the disk is full; without the record, the next start checks all files


def _open_below(top: int, workdir: str, names: List[str]) -> int:
    """Check the owner of each folder on the path `names` below the workdir, and return the
    descriptor of the last folder. `top`: the descriptor of the workdir; this function closes it.
    Raises UntrustedPath, OSError."""
    folder, path = top, workdir
    for name in names:
        path += "/" + name
        try:
            inner = _open_checked(name, path, workdir, folder)
        finally:
            os.close(folder)
        folder = inner
    return folder


def _check_folders_above(workdir: str) -> None:
    """Check that only this user and root can replace the folders above the workdir. Raises
    UntrustedPath, OSError."""
    try:
        for path, about in lstat_ancestors_from_root(workdir):
            if not _is_trusted(about.st_uid) and not is_outside_container(about.st_uid):
                raise UntrustedPath("owner above", path, workdir, about)
            if can_others_replace_entries(about):
                raise UntrustedPath("mode above", path, workdir, about)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise UntrustedPath("endless", error.filename, workdir, os.lstat(error.filename)) from error


def _open_checked(
    name: str, path: str, workdir: str, parent: Any = None, kind: int = stat.S_IFDIR
) -> int:
    """Open the folder or file `name` in the folder with the descriptor `parent`, and check its
    owner. `path`: its full path, for error messages. Raises UntrustedPath, OSError."""
    try:
        descriptor = os.open(name, _FLAGS[kind], dir_fd=parent)
    except FileNotFoundError:
        raise
    except OSError as error:
        error.filename = path
        _check_entry(os.stat(name, dir_fd=parent, follow_symlinks=False), path, workdir, kind)
        raise
    try:
        _check_entry(os.fstat(descriptor), path, workdir, kind)
    except UntrustedPath:
        os.close(descriptor)
        raise
    return descriptor


def _check_entry(
    file_stat: os.stat_result, path: str, workdir: str, kind: int, accepted_fault: str = ""
) -> None:
    why = _find_fault(file_stat, kind)
    if why not in ("", accepted_fault):
        raise UntrustedPath(why, path, workdir, file_stat)


def _find_fault(file_stat: os.stat_result, kind: int) -> str:
    """Return what is wrong with an entry of a folder, or "". The entry must be of the type `kind`
    and belong to this user or root, and no other user may write to it. A file must not have a
    second name (hard link)."""
    file_kind, is_ours = stat.S_IFMT(file_stat.st_mode), _is_trusted(file_stat.st_uid)
    if file_kind == stat.S_IFLNK:
        return "" if file_kind == kind and is_ours else "link"
    if not is_ours:
        return "owner"
    if file_kind != kind:
        return "no folder" if kind == stat.S_IFDIR else "no file"
    if file_stat.st_mode & OTHERS_WRITE:
        return "mode"
    return "names" if file_stat.st_nlink > 1 and kind != stat.S_IFDIR else ""


def _is_trusted(uid: int) -> bool:
    return uid in (os.geteuid(), 0)


def is_outside_container(uid: int) -> bool:
    """Return whether this uid of a folder may be the overflow uid, which a container shows for all
    users outside of the container. The uid then says nothing about the owner. Only folders above
    the workdir may have such a uid."""
    if uid not in OVERFLOW_UIDS:
        return False
    with open("/proc/self/uid_map") as mapping:
        return mapping.read().split() != ["0", "0", "4294967295"]


def _read_agent(workdir: str, name: str) -> Dict[str, bytes]:
    """Return path -> content, for all files of the agent that Python may run, except bytecode
    files. The owners and modes of bytecode files are checked too. Raises UntrustedPath, OSError."""
    content: Dict[str, bytes] = {}
    folder = _open_below(open_workdir(workdir), workdir, [AGENTS, name])
    try:
        _read_folder(folder, os.path.join(workdir, AGENTS, name), "", workdir, content)
    finally:
        os.close(folder)
    return content


def _read_folder(
    folder: int, path: str, prefix: str, workdir: str, content_by_path: Dict[str, bytes]
) -> None:
    with os.scandir(folder) as entries:
        for entry in entries:
            name = entry.name
            if entry.is_dir(follow_symlinks=False):
                inner = _open_checked(name, path + "/" + name, workdir, folder)
                try:
                    _read_folder(
                        inner, path + "/" + name, prefix + name + "/", workdir, content_by_path
                    )
                finally:
                    os.close(inner)
            elif prefix.endswith("__pycache__/") or (not prefix and is_seen_file(name)):
                try:
                    _check_entry(
                        entry.stat(follow_symlinks=False), path + "/" + name, workdir, stat.S_IFREG
                    )
                except FileNotFoundError:
                    pass  # the entry was a temporary file of another process of the agent
            else:
                content_by_path[prefix + name] = _read_file(
                    name, path + "/" + name, workdir, folder
                )


def _read_file(name: str, path: str, workdir: str, parent: int) -> bytes:
    file = _open_checked(name, path, workdir, parent, stat.S_IFREG)
    try:
        return os.read(file, os.fstat(file).st_size + 1)
    finally:
        os.close(file)
