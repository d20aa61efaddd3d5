"""Find out what systemd-logind does to a user's processes and shared memory when the user's last
session ends."""

from __future__ import annotations

import os
from glob import glob

from tfdeploy.agent.annotations import TYPE_CHECKING, Dict, Optional

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
_SYSTEM_UIDS = 1000  # logind does not remove the shared memory of users with a lower uid


def lingers(user: str) -> Optional[bool]:
    """Return True if the user's services continue after the last session ends; None: logind does
    not run."""
    return os.path.exists(os.path.join(_LINGER, user)) if os.path.isdir(SESSIONS) else None


def kills() -> bool:
    """Return True if logind is configured to kill processes that a user's session leaves."""
    return os.path.isdir(SESSIONS) and _settings().get("KillUserProcesses", "no").lower() in _YES


def at_logout(user: str) -> Answer:
    """Return what happens when this session ends. `kills`: its processes are killed. `removes_ipc`:
    the user's shared memory is removed."""
    if not os.path.isdir(SESSIONS):
        return {"kills": False, "removes_ipc": False}
    settings = _settings()
    removes = settings.get("RemoveIPC", "yes").lower() in _YES and os.getuid() >= _SYSTEM_UIDS
    return {
        "kills": kills() and _is_meant(user, settings) and _in_session(),
        "removes_ipc": removes,
    }


def _is_meant(user: str, settings: Dict[str, str]) -> bool:
    """Return True if logind kills this user's processes by KillOnlyUsers and KillExcludeUsers
    (default: root)."""
    if user in settings.get("KillExcludeUsers", "root").split():
        return False
    only = settings.get("KillOnlyUsers", "").split()
    return not only or user in only


def _in_session() -> bool:
    """Return True if this process is in a session's scope. With `UsePAM no` in sshd_config it is
    not."""
    try:
        with open("/proc/self/cgroup") as groups:
            return any("/session-" in line for line in groups)
    except OSError:
        return False


def _settings() -> Dict[str, str]:
    """Return key -> value of logind's settings. A later file overrides an earlier one."""
    settings: Dict[str, str] = {}
    dropped_in = [path for folder in _FOLDERS for path in sorted(glob(folder + "/*.conf"))]
    for path in (*_FILES, *dropped_in):
        try:
            with open(path, encoding="utf-8", errors="replace") as lines:
                for line in lines:
                    key, equals, value = line.partition("=")
                    if equals and not key.lstrip().startswith("#"):
                        settings[key.strip()] = value.strip()
        except OSError:
            continue
    return settings
