"""Store samples on disk: JSON objects, one a line, each with its `time` (UTC seconds). Bounded: the
older, the fewer.

All samples of the last hour stay. Before that every second one, before two hours every fourth,
before four every eighth, so that a week is some 2,500 samples. What is then more than MOST_BYTES is
thinned further, the older half first.
"""

from __future__ import annotations

import os

from tfdeploy.agent import json_text
from tfdeploy.agent.annotations import TYPE_CHECKING, Any, Dict, List, Mapping, Optional
from tfdeploy.agent.host import atomic

if TYPE_CHECKING:
    Row = Dict[str, Any]  # with "time": UTC seconds

MOST_BYTES = 1 << 20
WHOLE_S = 3600.0  # of which all samples stay
THIN_AFTER = 360  # samples: between two thinnings
_SLACK = 0.9  # of the step: samples come a little early or late


class Series:
    """One file, and its only writer. Never raises for a full disk: that sample is lost."""

    def __init__(self, path: str, step_s: float, most_bytes: int = MOST_BYTES) -> None:
        self._path, self._step_s, self._most_bytes = path, step_s, most_bytes
        self._added = 0
        atomic.remove_temporaries(path)

    def add(self, row: Mapping[str, Any]) -> None:
        try:
            atomic.append_line(self._path, row)
            self._added += 1
            if self._added >= THIN_AFTER or os.stat(self._path).st_size > self._most_bytes:
                self._added = 0
                self._thin(row["time"])
        except OSError:
            pass

    def _thin(self, now: float) -> None:
        lines = [
            json_text.dumps(row).encode("ascii") + b"\n"
            for row in thin(read(self._path), now, self._step_s)
        ]
        # half: room to grow until the next time
        while sum(map(len, lines)) > self._most_bytes // 2 and len(lines) > 2:
            older = len(lines) // 2
            lines = lines[:older:2] + lines[older:]
        atomic.write_bytes(self._path, b"".join(lines))


def read(path: str) -> List[Row]:
    """Return the samples, oldest first. Invalid lines are skipped."""
    try:
        with open(path, "rb") as file:
            content = file.read(4 * MOST_BYTES)
    except OSError:
        return []
    rows = (_row(line) for line in content.split(b"\n"))
    return [row for row in rows if row is not None]


def _row(line: bytes) -> Optional[Row]:
    try:
        row = json_text.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) and isinstance(row.get("time"), (int, float)) else None


def thin(rows: List[Row], now: float, step_s: float) -> List[Row]:
    """Return the samples that stay at `now`, of samples taken every `step_s`."""
    kept: List[Row] = []
    for row in reversed(rows):
        gap_s, whole_s = 0.0, WHOLE_S
        while now - row["time"] > whole_s:
            gap_s, whole_s = max(2 * gap_s, 2 * step_s), 2 * whole_s
        if not kept or kept[-1]["time"] - row["time"] >= _SLACK * gap_s:
            kept.append(row)
    return kept[::-1]
