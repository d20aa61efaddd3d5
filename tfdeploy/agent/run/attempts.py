"""Read from a task's journal how often the task was started on this host, and how each attempt
ended. The task's supervisor processes write the journal."""

from __future__ import annotations

import json
import os

from tfdeploy.agent import layout
from tfdeploy.agent.annotations import TYPE_CHECKING, Dict, List, Optional
from tfdeploy.agent.run import clock
from tfdeploy.agent.run.folder import RunPaths

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Answer

MOST_BYTES = 1 << 20  # how many bytes at the end of the journal are read
MOST_ATTEMPTS = 100  # only this many attempts, the newest ones, are returned
_OUTCOMES = ("succeeded", "failed", "killed", "stopped", "gave_up", "lost")


def list_attempts(paths: RunPaths, task: str) -> List[Answer]:
    """Return the attempts of the task, ordered by their numbers. Times are UTC seconds of the run's
    clock. Invalid lines are skipped, because a full disk may have truncated them."""
    part = paths.part()
    attempts: Dict[int, Answer] = {}
    for line in _read_last_lines(os.path.join(paths.task_dir(task), layout.JOURNAL)):
        try:
            entry = json.loads(line)
            number, time, what = (
                entry["attempt"],
                clock.to_run_time(part, float(entry["time"])),
                entry["what"],
            )
        except (ValueError, TypeError, KeyError, RecursionError):
            continue
        if not isinstance(number, int) or number < 1:
            continue
        if what == "started":
            attempts[number] = {
                "number": number,
                "started": time,
                "ended": None,
                "outcome": None,
                "exit_code": None,
                "signal": None,
                "reason": None,
            }
        elif what == "ended" and number in attempts and entry.get("outcome") in _OUTCOMES:
            row = attempts[number]
            row["ended"], row["outcome"] = time, entry["outcome"]
            row["exit_code"], row["signal"] = (
                _integer_or_none(entry.get("exit_code")),
                _integer_or_none(entry.get("signal")),
            )
            row["reason"] = entry["reason"] if isinstance(entry.get("reason"), str) else None
    return [attempts[number] for number in sorted(attempts)[-MOST_ATTEMPTS:]]


def _read_last_lines(path: str) -> List[bytes]:
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - MOST_BYTES))
            return file.read(MOST_BYTES).splitlines()
    except OSError:
        return []


def _integer_or_none(value: object) -> Optional[int]:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
