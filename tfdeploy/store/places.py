"""Find and check $XDG_STATE_HOME/tfdeploy, tfdeploy's state folder on the control machine."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

from tfdeploy.errors import Refused
from tfdeploy.machine.folders import home_folder
from tfdeploy.machine.ownership import find_folder_tamper_risk


def state_root(environ: Mapping[str, str]) -> Path:
    """Return $XDG_STATE_HOME/tfdeploy, by default ~/.local/state/tfdeploy. Creates nothing.

    Raises Refused if this user has no home.
    """
    base = environ.get("XDG_STATE_HOME", "")
    if not base.startswith("/"):
        home = home_folder(environ)
        if home is None:
            raise Refused(
                "HOME is unset or relative, and the password database has no home folder for you",
                where="this machine",
                next="`export HOME=FOLDER`, with a folder that only you can change",
            )
        base = str(Path(home) / ".local" / "state")
    return Path(base) / "tfdeploy"


def refuse_exposed_state_root(root: Path) -> None:
    """Raise Refused if another user can change the state folder.

    By changing the stored plans, that user could make tfdeploy start other programs on the hosts.
    """
    exposure = find_folder_tamper_risk(root)
    if exposure is None:
        return
    exposed_path, name = Path(exposure.path), shlex.quote(str(root))
    is_within = root in (exposed_path, *exposed_path.parents)
    fix = "" if exposure.is_foreign else exposure.fix
    if is_within and exposure.is_foreign:
        # The advice is to rename the folder. After a chown, the folder would still hold files of
        # the other user.
        fix = f"mv {shlex.quote(exposure.path)} {name}.foreign"
    elif is_within:
        fix = f"chmod go-w {name} {name}/*"
    elsewhere = "`export XDG_STATE_HOME=FOLDER`, with a folder that only you can change"
    raise Refused(
        f"{exposure.what}, but tfdeploy keeps its records of runs in {root}",
        where="this machine",
        next=f"`{fix}`; or {elsewhere}" if fix else elsewhere,
    )
