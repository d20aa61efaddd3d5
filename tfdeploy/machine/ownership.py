"""Check whether another user can change files that decide what this user runs."""

from __future__ import annotations

import contextlib
import os
import pwd
import shlex
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tfdeploy.agent.seen import OTHERS_WRITE, can_others_replace_entries, lstat_ancestors_from_root

_ACL = "system.posix_acl_access"


class TamperRisk(NamedTuple):
    """A file, folder or link (`path`) that another user can change.

    `what`: a sentence that names the owner of `path`, or who may write to it.
    `fix`: the command that ends the exposure.
    `is_foreign`: True if `path` belongs to another user.
    """

    path: str
    what: str
    fix: str
    is_foreign: bool


def find_tamper_risk(path: Path) -> TamperRisk | None:
    """Return the first folder, link or file on the absolute path that another user can change.

    Return None if there is none, or if the path does not exist. Both a link and the path that it
    leads to are checked. As in git, three users are trusted: this user, root and, under sudo, the
    user who called sudo.
    """
    with contextlib.suppress(OSError):
        for component, file_stat in lstat_ancestors_from_root(f"{Path.cwd() / path}/x"):
            exposure = _find_path_tamper_risk(component, file_stat)
            if exposure is not None:
                return exposure
    return None


def find_folder_tamper_risk(folder: Path) -> TamperRisk | None:
    """Return the first thing that lets other users change a folder that must be private, or None.

    The folder, the folders directly in it, and the path to it are checked. Another user must not
    even be able to add files to the folder. So the folder counts as exposed if it is like /tmp:
    everybody may add files, but the sticky bit protects the files of others.
    """
    exposure = find_tamper_risk(folder)
    if exposure is not None:
        return exposure
    with contextlib.suppress(OSError):
        inner = sorted(entry.path for entry in os.scandir(folder) if entry.is_dir())
        for path in (str(folder), *inner):
            file_stat = os.stat(path)
            exposure = _find_foreign_owner(path, file_stat) or _find_other_writers(path, file_stat)
            if exposure is None and os.path.islink(path):
                exposure = find_tamper_risk(Path(path))
            if exposure is not None:
                return exposure
    return None


def is_writable_by_others(folder: Path) -> bool:
    """True if another user may add files to the folder. False also if the folder cannot be read."""
    try:
        file_stat = folder.stat()
    except OSError:
        return False
    return _find_other_writers(str(folder), file_stat) is not None


def _trusted_users() -> tuple[int, ...]:
    """Return the ids of the users who may change the files of this user.

    They are this user, root and, under sudo, the user who called sudo.
    """
    me, caller = os.geteuid(), os.environ.get("SUDO_UID", "")
    return (me, 0, int(caller)) if me == 0 and caller.isdecimal() else (me, 0)


def _find_path_tamper_risk(path: str, file_stat: os.stat_result) -> TamperRisk | None:
    """Return a TamperRisk if another user can change `path`, else None.

    `path` is one step of the path that `find_tamper_risk` checks: a folder, a link or a file.
    """
    exposure = _find_foreign_owner(path, file_stat)
    if exposure is not None or stat.S_ISLNK(file_stat.st_mode):
        return exposure
    if stat.S_ISDIR(file_stat.st_mode) and not can_others_replace_entries(file_stat):
        return None
    return _find_other_writers(path, file_stat)


def _find_foreign_owner(path: str, file_stat: os.stat_result) -> TamperRisk | None:
    """Return a TamperRisk if the owner of `path` is not trusted, else None."""
    trusted = _trusted_users()
    if file_stat.st_uid in trusted:
        return None
    # Imported only here, because this module is rarely needed and slow to import.
    from tfdeploy.agent.ownership import is_outside_container

    if stat.S_ISDIR(file_stat.st_mode) and is_outside_container(file_stat.st_uid):
        return None
    flag = "-h " if stat.S_ISLNK(file_stat.st_mode) else ""
    return TamperRisk(
        path,
        f"{path} belongs to user {_account_name(pwd.getpwuid, file_stat.st_uid)}",
        f"sudo chown {flag}{_account_name(pwd.getpwuid, trusted[0])} {shlex.quote(path)}",
        is_foreign=True,
    )


def _find_other_writers(path: str, file_stat: os.stat_result) -> TamperRisk | None:
    """Return a TamperRisk if the mode of `path` lets other users write to it, else None."""
    # Writing to a character device such as /dev/null does not change what is read from it.
    if not file_stat.st_mode & OTHERS_WRITE or stat.S_ISCHR(file_stat.st_mode):
        return None
    bits = ""
    if file_stat.st_mode & stat.S_IWGRP and (_has_acl(path) or not _is_private(file_stat.st_gid)):
        bits += "g"
    if file_stat.st_mode & stat.S_IWOTH:
        bits += "o"
    if not bits:
        return None
    import grp  # rarely needed, and slow to import

    who = (
        "everybody on this machine"
        if "o" in bits
        else f"the group {_account_name(grp.getgrgid, file_stat.st_gid)}"
    )
    return TamperRisk(
        path,
        f"{path} may be written to by {who}",
        f"chmod {bits}-w {shlex.quote(path)}",
        is_foreign=False,
    )


def _is_private(gid: int) -> bool:
    """True if the group is the private group of a trusted user.

    A private group has the user's name and no other member. In a container, the group database may
    lack the group. Such a group counts as private if its number is the id of a trusted user.
    """
    import grp  # rarely needed, and slow to import

    trusted = _trusted_users()
    try:
        group = grp.getgrgid(gid)
    except KeyError:
        return gid in trusted
    for uid in trusted:
        with contextlib.suppress(KeyError):
            user = pwd.getpwuid(uid)
            if (
                user.pw_gid == gid
                and user.pw_name == group.gr_name
                and set(group.gr_mem) <= {user.pw_name}
            ):
                return True
    return False


def _has_acl(path: str) -> bool:
    """True if the file has an access control list, which may grant rights to further users.

    In the file's mode, such rights appear as rights of the group.
    """
    try:
        return bool(os.getxattr(path, _ACL))
    except (AttributeError, OSError):
        return False


def _account_name(entry_of: Callable[[int], Sequence[Any]], account_id: int) -> str:
    """Return the name of a user or group. If there is no entry for the number, return the number.

    `entry_of`: pwd.getpwuid or grp.getgrgid. The first field of an entry is the name.
    """
    try:
        return str(entry_of(account_id)[0])
    except KeyError:
        return str(account_id)
