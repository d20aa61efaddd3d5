"""Decide when to ask `status` again, because each answer costs a client and a session on each
host."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from tfdeploy.lab import Lab

ANYWAY_S = 5.0  # what a host cannot write is seen by asking
GROWS = ("log_bytes",)


class Glance:
    """Becomes true at first, when a state or a status of the run has changed on the labs' disks,
    and from time to time."""

    def __init__(self, lab: Lab, run: str) -> None:
        self._root = lab.root
        self._where = f"hosts/*/home/tfdeploy/*/runs/{run or '*'}/hosts/*"
        self._seen: dict[Path, Any] = {}
        self._asked = 0.0

    def __call__(self) -> bool:
        now = {
            path: _words(path)
            for name in ("state.json", "tasks/*/status.json")
            for path in self._root.glob(f"{self._where}/{name}")
        }
        if now and now == self._seen and time.monotonic() < self._asked + ANYWAY_S:
            return False
        self._seen, self._asked = now, time.monotonic()
        return True


def _words(path: Path) -> Any:
    try:
        return {
            key: value for key, value in json.loads(path.read_text()).items() if key not in GROWS
        }
    except (OSError, ValueError):
        return None
