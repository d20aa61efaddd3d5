"""Test which runs `tfdeploy runs` lists, and in which order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tfdeploy.operations import runs
from tfdeploy.operations.run_lookup.find_run import FoundRun
from tfdeploy.operations.run_lookup.host_plans import DifferentPlans
from tfdeploy.operations.runs import list_runs, newest_first, select_rows
from tfdeploy.store.runs import RunStore


def test_newest_runs_come_first_and_unknown_times_last() -> None:
    times = [
        "2026-11-21T10:15:00Z",
        None,
        "2026-11-21T10:15:00.250Z",
        "2025-01-01T00:00:00Z",
        "2026-11-21T10:15:01Z",
    ]
    sorted_times = [row["started"] for row in newest_first([{"started": time} for time in times])]
    assert sorted_times == [
        "2026-11-21T10:15:01Z",
        "2026-11-21T10:15:00.250Z",
        "2026-11-21T10:15:00Z",
        "2025-01-01T00:00:00Z",
        None,
    ]


def test_runs_are_selected_by_state_and_start() -> None:
    rows: Any = [
        {"run": "a", "state": "failed", "started": "1970-01-01T00:16:40.250Z"},
        {"run": "b", "state": "succeeded", "started": "1970-01-01T00:16:40Z"},
        {"run": "c", "state": None, "started": None},
    ]

    def names(*states: str, since: float | None = None) -> str:
        return "".join(row["run"] for row in select_rows(rows, states, since))

    assert (names(), names("failed"), names("failed", "succeeded"), names("lost")) == (
        "abc",
        "a",
        "ab",
        "",
    )
    assert (names(since=1000.0), names(since=1000.1), names("succeeded", since=1000.1)) == (
        "ab",
        "a",
        "",
    )


@pytest.mark.fault("62 a run of which hosts hold different plans, among the others")
def test_run_with_two_plans_is_listed_without_plan(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    known = [
        FoundRun(run="r2", job="j", live=True, starts_by_host={"n1": 2.0}, holders=["n1", "n2"]),
        FoundRun(run="r1", job="j", starts_by_host={"n1": 1.0}),
    ]
    monkeypatch.setattr(runs, "find_runs", lambda *_: (known, {}))

    def read(fleet: Any, hosts: Any, store: RunStore, found_run: FoundRun) -> None:
        if found_run.run == "r2":
            raise DifferentPlans(
                "hosts hold 2 different plans of r2: plan 1 is on n1; plan 2 is on n2"
            )

    monkeypatch.setattr(runs, "read_plan", read)
    fleet: Any = None
    rows, _ = list_runs(fleet, (), RunStore(tmp_path), None)
    assert [(row["run"], row["state"], "differ" in row) for row in rows] == [
        ("r2", None, True),
        ("r1", None, False),
    ]
