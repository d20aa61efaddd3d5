"""Where the operator's own folders are on this machine."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping


def home_folder(environ: Mapping[str, str]) -> str | None:
    """Return $HOME, else what the password database has for this user; None where neither knows one.

    Services and `env -i` have no HOME. A relative one would mean the current folder, and does not count.
    """
    home = environ.get("HOME", "")
    if not os.path.isabs(home):
        try:
            home = pwd.getpwuid(os.geteuid()).pw_dir
        except KeyError:
            return None
    return home if os.path.isabs(home) else None
