"""Store samples on disk as lines of JSON. The key `time` of a line has the time of the sample (UTC
seconds). The older samples are, the fewer of them are kept.

All samples of the last hour are kept. Of samples that are one to two hours old, one in two is kept;
of samples that are two to four hours old, one in four; and so on. In this way, a week takes about
2,500 samples. If the file is too large nevertheless, more samples are removed from its older half.
"""

from __future__ import annotations

import os

from tfdeploy.agent import json_text
from tfdeploy.agent.annotations import TYPE_CHECKING, Any, Dict, List, Mapping
from tfdeploy.agent.host import atomic

if TYPE_CHECKING:
    Row = Dict[str, Any]  # one sample; the key "time" has its time in UTC seconds

MOST_BYTES = 1 << 20
WHOLE_S = 3600.0  # all samples that are younger than this many seconds are kept
THIN_AFTER = 360  # after each THIN_AFTER new samples, some of the old ones are removed
# The older a sample is, the larger its distance to the next newer sample that is kept must be. It
# is kept if the distance is at least this fraction of the wanted one. The fraction is less than 1,
# because the times of samples are not quite regular.
_SLACK = 0.9


class Series:
    """The samples in one file. Only one process writes the file. If the disk is full, a sample is
    lost, but no error is raised."""

    def __init__(self, path: str, step_s: float) -> None:
        self._path, self._step_s = path, step_s
        self._added = 0
        atomic.remove_temporaries(path)

    def add(self, row: Mapping[str, Any]) -> None:
        try:
            atomic.append_line(self._path, row)
            self._added += 1
            if self._added >= THIN_AFTER or os.stat(self._path).st_size > MOST_BYTES:
                self._added = 0
                self._thin_out_old_rows(row["time"])
        except OSError:
            pass

    def _thin_out_old_rows(self, now: float) -> None:
        lines = [
            json_text.encode(row) + b"\n"
            for row in thin_by_age(read_rows(self._path), now, self._step_s)
        ]
        # Shrink the file to half of its limit, so that it can grow for some time before it must
        # shrink again.
        while sum(map(len, lines)) > MOST_BYTES // 2 and len(lines) > 2:
            older = len(lines) // 2
            lines = lines[:older:2] + lines[older:]
        atomic.write_bytes(self._path, b"".join(lines))


def read_rows(path: str) -> List[Row]:
    """Return the samples in the file. The oldest comes first. Invalid lines are skipped."""
    rows: List[Row] = []
    for line in atomic.read_start(path, 4 * MOST_BYTES).split(b"\n"):
        try:
            row = json_text.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict) and isinstance(row.get("time"), (int, float)):
            rows.append(row)
    return rows


def thin_by_age(rows: List[Row], now: float, sampling_interval_s: float) -> List[Row]:
    """Return those samples that must be kept at the time `now`. `sampling_interval_s`: the pause
    between two new samples."""
    kept: List[Row] = []
    for row in reversed(rows):
        gap_s, whole_s = 0.0, WHOLE_S
        while now - row["time"] > whole_s:
            gap_s, whole_s = max(2 * gap_s, 2 * sampling_interval_s), 2 * whole_s
        if not kept or kept[-1]["time"] - row["time"] >= _SLACK * gap_s:
            kept.append(row)
    return kept[::-1]
