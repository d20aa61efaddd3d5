"""Decide when a waiting test runs `tfdeploy status` again. Each call is costly: it starts tfdeploy
and opens a session on each host.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from tfdeploy.lab import Lab

# After this many seconds, ask the hosts even if nothing has changed on their disks, because not
# every state is written to a disk.
ANYWAY_S = 5.0
GROWS = ("log_bytes",)


class Glance:
    """A condition that is true if `status` should be asked: at the first call, after each change,
    and at least every ANYWAY_S seconds.

    A change means that a state.json or a status.json of the run has changed on a disk of the lab.
    """

    def __init__(self, lab: Lab, run: str) -> None:
        self._root = lab.root
        self._where = f"hosts/*/home/tfdeploy/*/runs/{run or '*'}/hosts/*"
        self._seen: dict[Path, Any] = {}
        self._asked = 0.0

    def __call__(self) -> bool:
        now = {
            path: _read_steady_fields(path)
            for name in ("state.json", "tasks/*/status.json")
            for path in self._root.glob(f"{self._where}/{name}")
        }
        if now and now == self._seen and time.monotonic() < self._asked + ANYWAY_S:
            return False
        self._seen, self._asked = now, time.monotonic()
        return True


def _read_steady_fields(path: Path) -> Any:
    try:
        return {
            key: value for key, value in json.loads(path.read_text()).items() if key not in GROWS
        }
    except (OSError, ValueError):
        return None
