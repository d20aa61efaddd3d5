"""Where the operator's own folders are on this machine."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping


def home_folder(environ: Mapping[str, str]) -> str | None:
    """Return $HOME, else the home folder of this user in the password database; None if neither has
    one.

    Services and `env -i` have no HOME. A relative HOME is ignored: it would depend on the current
    folder.
    """
    home = environ.get("HOME", "")
    if not os.path.isabs(home):
        try:
            home = pwd.getpwuid(os.geteuid()).pw_dir
        except KeyError:
            return None
    return home if os.path.isabs(home) else None
