"""Who owns these folders: nothing is read, run or written below a workdir that another user made,
owns or may write to.

From the workdir down each folder is opened below the one before it, never through a link. Its text
also runs on a host before any agent is there, behind that of seen.py: it imports nothing else of
ours.
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
_RACY_NS = 2_000_000_000  # a file that changed so lately may change again and show the same time
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
    """Return what is wrong, the advice and its details, as VerbError has them."""
    from tfdeploy.agent import mending  # most starts have no error

    return mending.describe_problem(error.why, error.path, error.workdir, error.about)


def check(workdir: str, *below: str) -> None:
    """The workdir and, for each path of `below` it, as much of it as is there. Raises NotOurs,
    OSError."""
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
    """Its descriptor. Raises NotOurs, FileNotFoundError, OSError."""
    _check_above(workdir)
    return _open(workdir, workdir, workdir)


def make_workdir(workdir: str) -> None:
    """Makes it, and the folders that are missing above it, for this user alone. Exists: success.
    Raises NotOurs, OSError."""
    _check_above(workdir)
    parent = os.path.dirname(workdir)
    if not os.path.isdir(parent):
        make_workdir(parent)
    try:
        os.mkdir(workdir, 0o700)
    except FileExistsError:
        return
    about = os.lstat(workdir)
    # another user's folder is never made by us: the file server changes owners
    if about.st_uid != os.geteuid():
        os.rmdir(workdir)
        raise NotOurs("mapped", workdir, workdir, about)


def has_agent(workdir: str, name: str) -> bool:
    """Whether the agent of that name is there and whole. False: it is missing or damaged, and may
    be installed."""
    if is_as_seen(workdir, name):
        return True
    folder = os.path.join(workdir, AGENTS, name)
    seen = _stamps(folder)  # before its files are read: a file that changes later has another stamp
    try:
        content = _agent_content(workdir, name)
    except FileNotFoundError:
        return False
    if name_of(content) != name:
        return False
    _write_stamps(seen, folder)
    return True


def check_agent(folder: str) -> None:
    """`folder` is <workdir>/.agent/<name>, or the source tree that tests run. Raises NotOurs,
    OSError."""
    parent, name = os.path.split(folder)
    workdir, agents = os.path.split(parent)
    if agents == AGENTS and not has_agent(workdir, name):
        raise NotOurs("damaged", folder, workdir)


def check_owner(about: os.stat_result, path: str, workdir: str) -> None:
    """`path`, of any kind, is ours and no other user may write to it. Raises NotOurs."""
    why = _fault(about, stat.S_IFMT(about.st_mode))
    if why not in ("", "names"):
        raise NotOurs(why, path, workdir, about)


def check_made_by_us(path: str, workdir: str) -> None:
    """It is a folder that this user made, and no link; its mode does not matter. Raises NotOurs."""
    about = os.lstat(path)
    why = _fault(about, stat.S_IFDIR)
    if why not in ("", "mode"):
        raise NotOurs(why, path, workdir, about)


def name_of(members: Dict[str, bytes]) -> str:
    """The name of an agent: a hash of its files' names, lengths and contents."""
    said = blake2b(digest_size=16)
    for name in sorted(members):
        said.update(b"%s\0%d\0" % (os.fsencode(name), len(members[name])))
        said.update(members[name])
    return str(said.hexdigest())


def _stamps(folder: str) -> str:
    """The stamps of the agent's files; "": a file changed too lately for them to be relied on."""
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
    """The folders above the workdir: only this user and root may replace any of them."""
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
    """The folder or file `name` below the descriptor `above`. `path`: for messages."""
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
    """Why this is not ours, of that kind, with at most one name, and writable by us alone; "": it
    is."""
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
    """Owned by a user of the machine around this container, shown here as the overflow uid. Only of
    folders above the workdir."""
    if uid not in _OVERFLOW_UIDS:
        return False
    with open("/proc/self/uid_map") as known:
        return [line.split() for line in known] != [["0", "0", "4294967295"]]


def _agent_content(workdir: str, name: str) -> Dict[str, bytes]:
    """path -> content of all that Python may run there but the bytecode, whose owner and mode are
    checked as of the rest."""
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
                    pass  # a temporary name: another start is writing it
            else:
                content[prefix + name] = _content(name, path + "/" + name, workdir, folder)


def _content(name: str, path: str, workdir: str, above: int) -> bytes:
    file = _open(name, path, workdir, above, stat.S_IFREG)
    try:
        return os.read(file, os.fstat(file).st_size + 1)
    finally:
        os.close(file)
