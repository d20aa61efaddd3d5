"""Describe a problem with the owner or mode of a file that ownership.py has found, and choose the
advice for the user.

This module also runs on hosts on which the agent is not installed yet. There, tfdeploy starts
Python with a program that consists of the source of seen.py and the source of this module. So this
module imports nothing else of tfdeploy except names for annotations.
"""

from __future__ import annotations

import os
import pwd
import stat

from tfdeploy.agent.annotations import Dict, Optional, Tuple
from tfdeploy.agent.seen import AGENTS, OVERFLOW_UIDS

_OWN_WORKDIR: Tuple[str, Dict[str, object]] = ("own_workdir", {})


def describe_problem(
    why: str, path: str, workdir: str, file_stat: Optional[os.stat_result]
) -> Tuple[str, str, Dict[str, object]]:
    """Return (description of the problem, name of a text in model/answers/failures.py, details for
    that text). `why`: UntrustedPath.why, which says what is wrong with the path."""
    if file_stat is None:
        return "%s is not the agent that tfdeploy installed" % path, "install_agent_again", {}
    if why == "mapped" or (why == "owner" and _is_mapped(file_stat.st_uid)):
        text = (
            "%s seems to belong to %s, and so do your own files: the file server changes the "
            "owners of files" % (path, _describe_user(file_stat.st_uid))
        )
        return text, "mend_mapping", {}
    owner = "belongs to " + _describe_user(file_stat.st_uid)
    mode = "may be written to by others (mode %04o)" % stat.S_IMODE(file_stat.st_mode)
    problem = {
        "endless": "is a link that leads to itself",
        "owner above": "%s, so %s may be replaced" % (owner, workdir),
        "mode above": "%s, so they may replace %s" % (mode, workdir),
        "link": "is a link to %s" % os.path.realpath(path),
        "owner": owner,
        "no folder": "is not a folder",
        "no file": "is not a plain file",
        "mode": mode,
        "names": "has a hard link, so the same file has a second name",
    }[why]
    is_above = why.endswith((" above", "endless"))
    return ("%s %s" % (path, problem), *_choose_advice(file_stat, path, workdir, is_above))


def _choose_advice(
    file_stat: os.stat_result, path: str, workdir: str, is_above: bool
) -> Tuple[str, Dict[str, object]]:
    """Return (name of a text in model/answers/failures.py, details for that text). `is_above`: True
    if `path` is above the workdir."""
    is_own = file_stat.st_uid == os.geteuid()
    within = [] if is_above else path[len(workdir) :].split("/")[1:3]
    if within[:1] == [AGENTS]:
        # After the user has removed this folder, the next session installs the agent again.
        agent = "/".join([workdir] + within)
        return ("remove_agent", {"agent": agent}) if is_own else _advise_set_aside(agent)
    # A folder with the sticky bit, such as /tmp, must keep its mode, because other users need it.
    if stat.S_ISDIR(file_stat.st_mode) and is_own and not file_stat.st_mode & stat.S_ISVTX:
        return "close_folder", {"path": path}
    if is_above:
        return _OWN_WORKDIR
    if within:
        return _advise_set_aside(path)
    if stat.S_ISLNK(file_stat.st_mode) and file_stat.st_uid in (os.geteuid(), 0):
        return "real_workdir", {"workdir": os.path.realpath(path)}
    return _advise_set_aside(path) if path == os.path.expanduser("~/tfdeploy") else _OWN_WORKDIR


def _advise_set_aside(path: str) -> Tuple[str, Dict[str, object]]:
    return "set_aside", {"path": path, "path_aside": path + ".foreign"}


def _is_mapped(uid: int) -> bool:
    """Return whether a file with this uid may be the user's own file, although the uid is another
    one: some file servers change uids. The answer is True if the user's home has the same uid, or
    if the uid stands for unknown owners."""
    try:
        return uid in OVERFLOW_UIDS or uid == os.stat(os.path.expanduser("~")).st_uid
    except OSError:
        return False


def _describe_user(uid: int) -> str:
    try:
        return "%s (uid %d)" % (pwd.getpwuid(uid).pw_name, uid)
    except KeyError:
        return "uid %d" % uid
