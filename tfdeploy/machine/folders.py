"""Find the operator's home folder on this machine."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping


def home_folder(environ: Mapping[str, str]) -> str | None:
    """Return the absolute path of this user's home folder, or None if there is none.

    $HOME is used if it is an absolute path, and otherwise the password database. Services and `env
    -i` have no HOME. A relative HOME would depend on the current folder.
    """
    home = environ.get("HOME", "")
    if not os.path.isabs(home):
        try:
            home = pwd.getpwuid(os.geteuid()).pw_dir
        except KeyError:
            return None
    return home if os.path.isabs(home) else None
