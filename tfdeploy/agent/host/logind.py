"""Find out what systemd-logind does when the last session of a user ends: whether it ends the
user's processes and removes the user's shared memory."""

from __future__ import annotations

import os
from glob import glob

from tfdeploy.agent.annotations import TYPE_CHECKING, Dict, Optional
from tfdeploy.agent.host.atomic import read_text

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Answer

SESSIONS = "/run/systemd/sessions"
_LINGER = "/var/lib/systemd/linger"
_FOLDERS = (
    "/usr/lib/systemd/logind.conf.d",
    "/etc/systemd/logind.conf.d",
    "/run/systemd/logind.conf.d",
)
_FILES = ("/usr/lib/systemd/logind.conf", "/etc/systemd/logind.conf")
_YES = ("yes", "true", "1", "on", "y", "t")
_SYSTEM_UIDS = 1000  # logind does not remove shared memory of users whose uid is lower than this


def is_lingering(user: str) -> Optional[bool]:
    """Return True if the user's services continue after the user's last session has ended. Return
    None if logind does not run."""
    return os.path.exists(os.path.join(_LINGER, user)) if os.path.isdir(SESSIONS) else None


def is_logout_kill_configured() -> bool:
    """Return True if logind is configured to kill the processes that are left when a session
    ends."""
    return (
        os.path.isdir(SESSIONS) and _read_settings().get("KillUserProcesses", "no").lower() in _YES
    )


def logout_effects(user: str) -> Answer:
    """Return what happens when this SSH session ends. `kills`: logind kills the processes of the
    session. `removes_ipc`: logind removes the user's shared memory."""
    if not os.path.isdir(SESSIONS):
        return {"kills": False, "removes_ipc": False}
    settings = _read_settings()
    removes = settings.get("RemoveIPC", "yes").lower() in _YES and os.getuid() >= _SYSTEM_UIDS
    return {
        "kills": is_logout_kill_configured()
        and _is_killing_user(user, settings)
        and _is_in_session(),
        "removes_ipc": removes,
    }


def _is_killing_user(user: str, settings: Dict[str, str]) -> bool:
    """Return True if the settings KillOnlyUsers and KillExcludeUsers (by default: root) let logind
    kill this user's processes."""
    if user in settings.get("KillExcludeUsers", "root").split():
        return False
    only = settings.get("KillOnlyUsers", "").split()
    return not only or user in only


def _is_in_session() -> bool:
    """Return True if this process is in the scope of a logind session. With `UsePAM no` in
    sshd_config, an SSH session is in no such scope."""
    return "/session-" in read_text("/proc/self/cgroup")


def _read_settings() -> Dict[str, str]:
    """Return key -> value of logind's settings. Settings in a later file override those in an
    earlier one."""
    settings = {}
    dropped_in = [path for folder in _FOLDERS for path in sorted(glob(folder + "/*.conf"))]
    for path in (*_FILES, *dropped_in):
        for line in read_text(path).split("\n"):
            key, equals, value = line.partition("=")
            if equals and not key.lstrip().startswith("#"):
                settings[key.strip()] = value.strip()
    return settings
