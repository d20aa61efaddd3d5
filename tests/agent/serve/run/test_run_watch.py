"""Test that a client that watches a run is told when an attempt of a task has ended. The client is
told this in addition to the statuses of the tasks.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from support.agent.client import make_run
from tfdeploy.agent import layout, wire
from tfdeploy.agent.run import find
from tfdeploy.agent.serve.run.follow import EndedAttempts


def lines(*attempts: tuple[int, float | None]) -> str:
    """Return the lines of a journal that has these attempts.

    Each attempt is given as (number, time of its end or None). An attempt starts at the time 10 *
    number.
    """
    sent_lines: list[dict[str, Any]] = []
    for number, ended in attempts:
        sent_lines.append({"what": "started", "attempt": number, "time": 10.0 * number, "pid": 7})
        if ended is not None:
            how = {"outcome": "killed", "exit_code": None, "signal": 9, "reason": None}
            sent_lines.append({"what": "ended", "attempt": number, "time": ended, **how})
    return "".join(json.dumps(each) + "\n" for each in sent_lines)


def test_each_end_is_told_once_also_where_no_status_showed_it(tmp_path: Path) -> None:
    task = make_run(tmp_path, "run", "committed", state="running", attempt=1)
    paths = find.find_run_paths(str(tmp_path), "job", "run")
    assert paths is not None
    ends = EndedAttempts(paths)

    def new(attempt: int, state: str) -> list[tuple[int, float | None, str | None]]:
        status = wire.TaskStatus(
            run="run", task="worker:0", host="n1", attempt=attempt, state=state
        )
        return [
            (row["number"], row["ended"], row["outcome"]) for row in ends.take_unreported(status)
        ]

    journal = task / layout.JOURNAL
    journal.write_text(lines((1, None)))
    assert new(1, "running") == []
    journal.write_text(lines((1, 12.0)))
    # The end of attempt 1 is in the task's status, so it is not reported again.
    assert new(1, "ended") == []
    assert new(1, "pending") == [(1, 12.0, "killed")]
    assert new(1, "pending") == []
    journal.write_text(lines((1, 12.0), (2, 21.0), (3, 31.0), (4, None)))
    assert new(4, "running") == [(2, 21.0, "killed"), (3, 31.0, "killed")]
    journal.write_text(lines((1, 12.0), (2, 21.0), (3, 31.0), (4, 43.0), (5, None)))
    assert new(5, "running") == [(4, 43.0, "killed")]
