"""Check who owns the workdir and everything below it. tfdeploy reads, runs and writes nothing that
another user made, owns or may write to.

From the workdir down, each folder is opened relative to its parent, never through a link. The
source of this module also runs on a host without an agent, after the source of seen.py, so it
imports no other module of tfdeploy except names for annotations.
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
    SEEN,
    above,
    is_as_seen,
    is_record,
    may_be_replaced,
    stamps,
)

try:
    from _blake2 import blake2b  # hashlib loads OpenSSL: 3 ms of each session
except ImportError:
    from hashlib import blake2b

_FLAGS = {
    stat.S_IFDIR: os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC,
    stat.S_IFREG: os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC,
}
# A file that changed less than this time ago may change again without a change of its time.
_RACY_NS = 2_000_000_000
# uids that a file server, or a container, shows for unknown owners
_OVERFLOW_UIDS = (65534, 4294967294)


class NotOurs(PermissionError):
    """Another user owns `path` or may change it. `why`: a key of mending.describe_problem."""

    def __init__(
        self, why: str, path: str, workdir: str, about: Optional[os.stat_result] = None
    ) -> None:
        super().__init__(1, why, path)
        self.why, self.path, self.workdir, self.about = why, path, workdir, about

    def __str__(self) -> str:
        return explain(self)[0]


def explain(error: NotOurs) -> Tuple[str, str, Dict[str, object]]:
    """Return what is wrong, the advice and its details, in the form of VerbError."""
    from tfdeploy.agent import mending  # not loaded by starts without an error

    return mending.describe_problem(error.why, error.path, error.workdir, error.about)


def check(workdir: str, *below: str) -> None:
    """Check the owner of the workdir and of each path in `below`, relative to the workdir, as far
    as they exist. Raises NotOurs, OSError."""
    try:
        top = open_workdir(workdir)
    except FileNotFoundError:
        return
    try:
        for path in below:
            _check_path(top, workdir, [word for word in path.split("/") if word])
    finally:
        os.close(top)


def open_workdir(workdir: str) -> int:
    """Return a descriptor of the workdir. Raises NotOurs, FileNotFoundError, OSError."""
    _check_above(workdir)
    return _open(workdir, workdir, workdir)


def make_workdir(workdir: str) -> None:
    """Make the workdir and missing folders above it, for this user alone. An existing workdir is
    left as it is. Raises NotOurs, OSError."""
    _check_above(workdir)
    parent = os.path.dirname(workdir)
    if not os.path.isdir(parent):
        make_workdir(parent)
    try:
        os.mkdir(workdir, 0o700)
    except FileExistsError:
        return
    about = os.lstat(workdir)
    # This process has just made the folder. If another user owns it, a file server changes owners.
    if about.st_uid != os.geteuid():
        os.rmdir(workdir)
        raise NotOurs("mapped", workdir, workdir, about)


def has_agent(workdir: str, name: str) -> bool:
    """Return whether the agent `name` is installed and complete. False: it is missing or damaged,
    and may be installed. Raises NotOurs, OSError."""
    if is_as_seen(workdir, name):
        return True
    folder = os.path.join(workdir, AGENTS, name)
    # Stamps are taken before the files are read, so a file that changes later has another stamp.
    seen = _stamps(folder)
    try:
        content = _agent_content(workdir, name)
    except FileNotFoundError:
        return False
    if name_of(content) != name:
        return False
    _write_stamps(seen, folder)
    return True


def check_agent(folder: str) -> None:
    """Check the agent in `folder`: <workdir>/.agent/<name>. Tests run the agent from the source
    tree, which is not checked. Raises NotOurs, OSError."""
    parent, name = os.path.split(folder)
    workdir, agents = os.path.split(parent)
    if agents == AGENTS and not has_agent(workdir, name):
        raise NotOurs("damaged", folder, workdir)


def check_owner(about: os.stat_result, path: str, workdir: str) -> None:
    """Check that `path`, of any kind, belongs to us and that no other user may write to it. Raises
    NotOurs."""
    why = _fault(about, stat.S_IFMT(about.st_mode))
    if why not in ("", "names"):
        raise NotOurs(why, path, workdir, about)


def check_made_by_us(path: str, workdir: str) -> None:
    """Check that `path` is a folder of this user and no link. Its mode does not matter. Raises
    NotOurs, OSError."""
    about = os.lstat(path)
    why = _fault(about, stat.S_IFDIR)
    if why not in ("", "mode"):
        raise NotOurs(why, path, workdir, about)


def name_of(members: Dict[str, bytes]) -> str:
    """Return the name of an agent: a hash of the names, lengths and contents of its files."""
    digest = blake2b(digest_size=16)
    for name in sorted(members):
        digest.update(b"%s\0%d\0" % (os.fsencode(name), len(members[name])))
        digest.update(members[name])
    return str(digest.hexdigest())


def _stamps(folder: str) -> str:
    """Return the stamps of the agent's files, or "" if a file changed too recently for its stamp to
    be reliable."""
    try:
        stamps_text = stamps(folder, (0, os.geteuid()))
    except OSError:
        return ""  # the full check finds and reports what is wrong there
    newest = max((int(line.rsplit(" ", 1)[1]) for line in stamps_text.splitlines()), default=0)
    return stamps_text if newest < time.time_ns() - _RACY_NS else ""


def _write_stamps(seen: str, folder: str) -> None:
    if not seen:
        return
    fresh = os.path.join(folder, "%s.%d" % (SEEN, os.getpid()))
    try:
        file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with open(file, "w", errors="surrogateescape") as record:
            record.write(seen)
        os.rename(fresh, os.path.join(folder, SEEN))
    except OSError:
        pass  # a full disk: the next start checks all files again


def _check_path(top: int, workdir: str, words: List[str]) -> None:
    folder, path = os.dup(top), workdir
    try:
        for word in words:
            path += "/" + word
            inner = _open(word, path, workdir, folder)
            os.close(folder)
            folder = inner
    except FileNotFoundError:
        pass
    finally:
        os.close(folder)


def _check_above(workdir: str) -> None:
    """Check that only this user and root may replace the folders above the workdir. Raises NotOurs,
    OSError."""
    try:
        for path, about in above(workdir):
            _check_holder(about, path, workdir)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise NotOurs("endless", error.filename, workdir, os.lstat(error.filename)) from error


def _check_holder(about: os.stat_result, path: str, workdir: str) -> None:
    if not _is_trusted(about.st_uid) and not is_of_the_container(about.st_uid):
        raise NotOurs("owner above", path, workdir, about)
    if may_be_replaced(about):
        raise NotOurs("mode above", path, workdir, about)


def _open(name: str, path: str, workdir: str, above: Any = None, kind: int = stat.S_IFDIR) -> int:
    """Open the folder or file `name` relative to the descriptor `above`, and check its owner.
    `path`: its whole path, for messages. Raises NotOurs, OSError."""
    try:
        descriptor = os.open(name, _FLAGS[kind], dir_fd=above)
    except FileNotFoundError:
        raise
    except OSError as error:
        error.filename = path
        _check_entry(os.stat(name, dir_fd=above, follow_symlinks=False), path, workdir, kind)
        raise
    try:
        _check_entry(os.fstat(descriptor), path, workdir, kind)
    except NotOurs:
        os.close(descriptor)
        raise
    return descriptor


def _check_entry(about: os.stat_result, path: str, workdir: str, kind: int) -> None:
    why = _fault(about, kind)
    if why:
        raise NotOurs(why, path, workdir, about)


def _fault(about: os.stat_result, kind: int) -> str:
    """Return what is wrong with an entry that must have the type `kind`, belong to us, be writable
    by us alone and, unless it is a folder, have no second name. Return "" if nothing is wrong."""
    file_kind, is_ours = stat.S_IFMT(about.st_mode), _is_trusted(about.st_uid)
    if file_kind == stat.S_IFLNK:
        return "" if file_kind == kind and is_ours else "link"
    if not is_ours:
        return "owner"
    if file_kind != kind:
        return "no folder" if kind == stat.S_IFDIR else "no file"
    if about.st_mode & OTHERS_WRITE:
        return "mode"
    return "names" if about.st_nlink > 1 and kind != stat.S_IFDIR else ""


def _is_trusted(uid: int) -> bool:
    return uid in (os.geteuid(), 0)


def is_of_the_container(uid: int) -> bool:
    """Return whether the uid stands for a user of the machine outside this container. The container
    shows such users as the overflow uid. Applies only to folders above the workdir."""
    if uid not in _OVERFLOW_UIDS:
        return False
    with open("/proc/self/uid_map") as known:
        return [line.split() for line in known] != [["0", "0", "4294967295"]]


def _agent_content(workdir: str, name: str) -> Dict[str, bytes]:
    """Return path -> content of all files of the agent that Python may run, except bytecode. The
    owner and mode of bytecode files are checked too. Raises NotOurs, OSError."""
    content: Dict[str, bytes] = {}
    top = open_workdir(workdir)
    opened: List[Tuple[int, str]] = [(top, "")]
    try:
        path = workdir
        for word in (AGENTS, name):
            path += "/" + word
            opened.append((_open(word, path, workdir, opened[-1][0]), ""))
        _read_folder(opened[-1][0], path, "", workdir, content)
    finally:
        for folder, _ in opened:
            os.close(folder)
    return content


def _read_folder(
    folder: int, path: str, prefix: str, workdir: str, content: Dict[str, bytes]
) -> None:
    with os.scandir(folder) as entries:
        for entry in entries:
            name = entry.name
            if entry.is_dir(follow_symlinks=False):
                inner = _open(name, path + "/" + name, workdir, folder)
                try:
                    _read_folder(inner, path + "/" + name, prefix + name + "/", workdir, content)
                finally:
                    os.close(inner)
            elif prefix.endswith("__pycache__/") or (not prefix and is_record(name)):
                try:
                    _check_entry(
                        entry.stat(follow_symlinks=False), path + "/" + name, workdir, stat.S_IFREG
                    )
                except FileNotFoundError:
                    pass  # a temporary file of another start
            else:
                content[prefix + name] = _content(name, path + "/" + name, workdir, folder)


def _content(name: str, path: str, workdir: str, above: int) -> bytes:
    file = _open(name, path, workdir, above, stat.S_IFREG)
    try:
        return os.read(file, os.fstat(file).st_size + 1)
    finally:
        os.close(file)
