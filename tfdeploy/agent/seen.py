"""Check quickly at each start whether the agent's files are the same as at the last full check. If
they are, the start need not read all files again.

The source of this module is compiled at each start, before anything else. So it is short, and
imports nothing from tfdeploy except names for annotations. ownership.py does the full check and
reports what is wrong. Any change of a file changes its ctime, and no program can set a ctime.
"""

from __future__ import annotations

import errno
import os
import stat

from tfdeploy.agent.annotations import Iterator, List, Tuple

AGENTS = ".agent"
# Name of a file in the agent's folder. It contains the stamps (see `read_file_stamps`) that all
# files had at the last full check.
SEEN = "seen"
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
# uids that a file server or a container shows for unknown owners
OVERFLOW_UIDS = (65534, 4294967294)
_CACHE = "__pycache__"


def is_agent_unchanged(workdir: str, name: str) -> bool:
    """Return whether the agent's files have the same stamps as at the last full check, and no other
    user can change a folder on the path to them."""
    try:
        ours = (0, os.geteuid())
        for _, about in lstat_ancestors_from_root(workdir):
            if about.st_uid not in ours or can_others_replace_entries(about):
                return False
        agents = workdir + "/" + AGENTS
        for folder in (workdir, agents, agents + "/" + name):
            about = os.lstat(folder)
            if (
                about.st_uid not in ours
                or about.st_mode & OTHERS_WRITE
                or not stat.S_ISDIR(about.st_mode)
            ):
                return False
        with open(folder + "/" + SEEN, errors="surrogateescape") as file:
            return file.read() == read_file_stamps(folder, ours)
    except OSError:
        return False


def read_file_stamps(agent_folder: str, trusted_uids: Tuple[int, int]) -> str:
    """Return one line (path, inode, size, ctime_ns) for each file of the agent that Python may run,
    except bytecode files. Raises OSError, also if another user owns a file or may write to it."""
    lines = []
    folders = [agent_folder]
    for folder in folders:
        with os.scandir(folder) as entries:
            for entry in entries:
                counts = not folder.endswith(_CACHE) and not (
                    folder == agent_folder and is_seen_file(entry.name)
                )
                try:
                    about = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    if counts:
                        raise
                    continue  # the entry was a temporary file of another process, and is gone
                if about.st_uid not in trusted_uids or about.st_mode & OTHERS_WRITE:
                    raise PermissionError(entry.path)
                if stat.S_ISDIR(about.st_mode):
                    folders.append(entry.path)
                elif not stat.S_ISREG(about.st_mode) or about.st_nlink > 1:
                    raise PermissionError(entry.path)
                elif counts:
                    stamp = (
                        entry.path[len(agent_folder) :],
                        about.st_ino,
                        about.st_size,
                        about.st_ctime_ns,
                    )
                    lines.append("%s %d %d %d" % stamp)
    return "\n".join(sorted(lines))


def is_seen_file(name: str) -> bool:
    """Return whether `name` is SEEN, or the temporary name of a file that will be renamed to
    SEEN."""
    first, dot, pid = name.partition(".")
    return first == SEEN and (not dot or pid.isdigit())


def lstat_ancestors_from_root(workdir: str) -> Iterator[Tuple[str, os.stat_result]]:
    """Yield (path, lstat result) for the folders and links above the workdir that exist, beginning
    at /. Raises OSError, with ELOOP if links form a cycle."""
    path, todo, links = "/", _path_components(workdir)[:-1], 0
    yield "/", os.lstat("/")
    while todo:
        step = todo.pop(0)
        if step == "..":
            path = os.path.dirname(path)
            continue
        path = os.path.join(path, step)
        try:
            about = os.lstat(path)
        except FileNotFoundError:
            return
        yield path, about
        if stat.S_ISLNK(about.st_mode):
            links += 1
            if links > 40:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            target = os.readlink(path)
            todo[:0] = _path_components(target)
            path = "/" if target.startswith("/") else os.path.dirname(path)


def can_others_replace_entries(folder_stat: os.stat_result) -> bool:
    """Return whether a user other than the folder's owner may replace entries of the folder."""
    return bool(
        folder_stat.st_mode & OTHERS_WRITE
        and not folder_stat.st_mode & stat.S_ISVTX
        and not stat.S_ISLNK(folder_stat.st_mode)
    )


def _path_components(path: str) -> List[str]:
    return [word for word in path.split("/") if word not in ("", ".")]
