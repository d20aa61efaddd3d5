"""Whether another user of this machine can change a file that decides what we run, and where."""

from __future__ import annotations

import pwd
import shlex
import stat
from pathlib import Path


def ownership_warning(path: Path, me: int) -> str | None:
    """A warning with the command that corrects it, or None. `me`: our user id; root's files are trusted."""
    try:
        found = path.stat()
    except OSError:
        return None
    name = shlex.quote(str(path))
    if found.st_uid not in (0, me):
        return f"{path} belongs to user {_user(found.st_uid)}, who thus decides what runs as you: sudo chown {_user(me)} {name}"
    if found.st_mode & stat.S_IWOTH:
        return f"{path} may be written by everybody on this machine, and decides what runs as you: chmod o-w {name}"
    return None


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)
