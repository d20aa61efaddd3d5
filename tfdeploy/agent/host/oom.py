"""Whether the kernel killed something in our control group for want of memory. Unknown counts as no."""

from __future__ import annotations

import os

from tfdeploy.agent.annotations import Dict, Optional


def kills() -> Optional[int]:
    """The count of such kills in this process's control group, or None where the kernel does not say."""
    groups = _groups()
    candidates = [("/sys/fs/cgroup/memory", groups.get("memory"), "memory.oom_control")]
    candidates.append(("/sys/fs/cgroup", groups.get(""), "memory.events"))
    for base, path, name in candidates:
        if path is not None:
            count = _count(os.path.join(base, path.lstrip("/"), name))
            if count is not None:
                return count
    return None


def _groups() -> Dict[str, str]:
    found: Dict[str, str] = {}
    try:
        with open("/proc/self/cgroup") as file:
            for line in file:
                _, controllers, path = line.rstrip("\n").split(":", 2)
                for controller in controllers.split(","):
                    found[controller] = path
    except (OSError, ValueError):
        pass
    return found


def _count(file_name: str) -> Optional[int]:
    try:
        with open(file_name) as file:
            words = dict(line.split()[:2] for line in file if len(line.split()) >= 2)
        return int(words["oom_kill"])
    except (OSError, ValueError, KeyError):
        return None
