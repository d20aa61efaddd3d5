"""Test that the right attempts of a task are read from its journal, whatever else is in this file.
The journal has a line for each event of an attempt.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tfdeploy.agent.run.attempts import MOST_ATTEMPTS, MOST_BYTES, list_attempts


class Paths(SimpleNamespace):
    """The paths of a run on a host whose clock is two seconds ahead of the clock of the run."""

    def task_dir(self, task: str) -> str:
        return str(self.folder)

    def part(self) -> Any:
        return SimpleNamespace(ahead_s=2.0)


def line(what: str, attempt: Any, at: float, **more: Any) -> str:
    return json.dumps({"what": what, "attempt": attempt, "time": at, **more})


def parse_journal(folder: Path, *lines: str) -> list[Any]:
    (folder / "journal").write_text("\n".join(lines) + "\n")
    return list_attempts(Paths(folder=folder), "worker:0")  # type: ignore[arg-type]


def test_starts_and_ends_by_the_clock_of_the_run(tmp_path: Path) -> None:
    died = line("ended", 1, 20.0, outcome="killed", signal=9, exit_code=None, reason=None)
    first, second = parse_journal(
        tmp_path,
        line("started", 1, 10.0, pid=1),
        line("up", 1, 11.0),
        died,
        line("started", 2, 22.0),
    )
    assert first == {
        "number": 1,
        "started": 8.0,
        "ended": 18.0,
        "outcome": "killed",
        "exit_code": None,
        "signal": 9,
        "reason": None,
    }
    assert (second["number"], second["started"], second["ended"], second["outcome"]) == (
        2,
        20.0,
        None,
        None,
    )


def test_what_is_torn_or_strange_is_left_out(tmp_path: Path) -> None:
    odd = [
        '{"what": "sta',
        "[]",
        "\0",
        line("started", "x", 1.0),
        line("started", 0, 1.0),
        line("ended", 7, 1.0, outcome="failed"),
    ]
    strange = line("ended", 1, 2.0, outcome="exploded")
    (row,) = parse_journal(tmp_path, *odd, line("started", 1, 10.0), strange)
    assert row["ended"] is None
    (row,) = parse_journal(
        tmp_path,
        line("started", 1, 10.0),
        line("ended", 1, 12.0, outcome="failed", exit_code=True, reason=[1]),
    )
    assert (row["exit_code"], row["reason"]) == (None, None)
    (tmp_path / "journal").unlink()
    assert list_attempts(Paths(folder=tmp_path), "worker:0") == []  # type: ignore[arg-type]


def test_a_long_journal_gives_its_newest(tmp_path: Path) -> None:
    padding = "x" * 2000
    lines = [line("started", number, float(number), argv=padding) for number in range(1, 1200)]
    changed = parse_journal(tmp_path, *lines)
    assert len("\n".join(lines)) > 2 * MOST_BYTES
    assert [row["number"] for row in changed] == list(range(1200 - MOST_ATTEMPTS, 1200))
