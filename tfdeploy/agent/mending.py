"""What is wrong with a folder that other users may change, in words, and the command that mends it: see ownership.py.

Its text is also run on a host that has no agent: it imports nothing of ours.
"""

from __future__ import annotations

import os
import pwd
import shlex
import stat

from tfdeploy.agent.annotations import Optional, Tuple

_AGENTS = ".agent"
_UNKNOWN = (65534, 4294967294)  # uids that a file server shows for unknown owners


def words(why: str, path: str, workdir: str, about: Optional[os.stat_result]) -> Tuple[str, str]:
    """(what is wrong, what to type on the host, or "write `workdir: ...`")."""
    if about is None:
        return "%s is not the agent that was put there" % path, "any tfdeploy command for this host puts it there again"
    if why == "mapped" or (why == "owner" and _is_mapped(about.st_uid)):
        said = "%s shows as owned by %s, as your own files do there: its file server changes owners" % (path, _user(about.st_uid))
        return said, "write `workdir:` of a local disk in the inventory, or have the mapping of that mount mended"
    what = {
        "endless": "is a link that leads to itself",
        "owner above": "belongs to %s, so %s may be replaced" % (_user(about.st_uid), workdir),
        "mode above": "may be written to by others (%s), so they may replace %s" % (_mode(about), workdir),
        "link": "is a link to %s" % os.path.realpath(path),
        "owner": "belongs to %s" % _user(about.st_uid),
        "no folder": "is not a folder",
        "no file": "is not a plain file",
        "mode": "may be written to by others (%s)" % _mode(about),
        "names": "has a second name, a hard link",
    }[why]
    return "%s %s" % (path, what), _above(about, path) if why.endswith((" above", "endless")) else _mend(about, path, workdir)


def _above(about: os.stat_result, path: str) -> str:
    own = about.st_uid == os.geteuid() and stat.S_ISDIR(about.st_mode)
    return "chmod go-w %s" % shlex.quote(path) if own else _elsewhere()


def _mend(about: os.stat_result, path: str, workdir: str) -> str:
    own = about.st_uid == os.geteuid()
    within = path[len(workdir) :].split("/")[1:3]
    if within[:1] == [_AGENTS]:
        agent = "/".join([workdir] + within)  # the next session installs it again
        return "rm -r %s" % shlex.quote(agent) if own else _set_aside(agent)
    if stat.S_ISDIR(about.st_mode) and own:
        return "chmod go-w %s" % shlex.quote(path)
    if within:
        return _set_aside(path)
    if stat.S_ISLNK(about.st_mode) and about.st_uid in (os.geteuid(), 0):
        return "write `workdir: %s` in the inventory" % os.path.realpath(path)
    return _set_aside(path) if path == os.path.expanduser("~/tfdeploy") else _elsewhere()


def _set_aside(path: str) -> str:
    return "mv %s %s" % (shlex.quote(path), shlex.quote(path + ".foreign"))


def _elsewhere() -> str:
    return "write `workdir: ~/tfdeploy` in the inventory, or another folder that only you may replace"


def _is_mapped(uid: int) -> bool:
    """Whether the mount shows our own files with that uid: it does so for our home, or maps unknown owners."""
    try:
        return uid in _UNKNOWN or uid == os.stat(os.path.expanduser("~")).st_uid
    except OSError:
        return False


def _user(uid: int) -> str:
    try:
        return "%s (uid %d)" % (pwd.getpwuid(uid).pw_name, uid)
    except KeyError:
        return "uid %d" % uid


def _mode(about: os.stat_result) -> str:
    return "mode %04o" % stat.S_IMODE(about.st_mode)
