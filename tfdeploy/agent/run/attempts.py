"""Read from a task's journal how often the task was started on this host, and how each attempt
ended. The task's supervisor processes write the journal."""

from __future__ import annotations

import json
import os

from tfdeploy.agent import layout, wire
from tfdeploy.agent.annotations import TYPE_CHECKING, Any, Dict, List
from tfdeploy.agent.host.atomic import read_end
from tfdeploy.agent.run import clock
from tfdeploy.agent.run.folder import RunPaths

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import Answer

MOST_BYTES = 1 << 20  # how many bytes at the end of the journal are read
MOST_ATTEMPTS = 100  # only this many attempts, the newest ones, are returned


def list_attempts(paths: RunPaths, task: str) -> List[Answer]:
    """Return the newest MOST_ATTEMPTS attempts of the task, ordered by their numbers. Times are UTC
    seconds of the run's clock. Journal lines that cannot be parsed are skipped, because a full disk
    may have truncated them."""
    part = paths.part()
    attempts: Dict[int, Answer] = {}
    journal = os.path.join(paths.task_dir(task), layout.JOURNAL)
    for line in read_end(journal, MOST_BYTES).splitlines():
        try:
            entry = json.loads(line)
            number, event = entry["attempt"], entry["what"]
            time = clock.to_run_clock(part, float(entry["time"]))
        except (ValueError, TypeError, KeyError, RecursionError):
            continue
        if not isinstance(number, int) or number < 1:
            continue
        if event == "started":
            unknown = dict.fromkeys(("ended", "outcome", "exit_code", "signal", "reason"))
            attempts[number] = {"number": number, "started": time, **unknown}
        elif event == "ended" and number in attempts and entry.get("outcome") in wire.OUTCOMES:
            attempts[number].update(
                ended=time,
                outcome=entry["outcome"],
                exit_code=_value_or_none(entry, "exit_code", int),
                signal=_value_or_none(entry, "signal", int),
                reason=_value_or_none(entry, "reason", str),
            )
    return [attempts[number] for number in sorted(attempts)[-MOST_ATTEMPTS:]]


def _value_or_none(entry: Answer, key: str, value_type: type) -> Any:
    """Return the value of the key if it has exactly this type, else None."""
    value = entry.get(key)
    return value if type(value) is value_type else None
