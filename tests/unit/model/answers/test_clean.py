"""Test that `clean` keeps the right runs: those that are alive on some host, the N newest, and
those that are younger than a limit.
"""

from __future__ import annotations

import pytest

from tfdeploy.model.answers.clean import (
    CleanItem,
    CleanRules,
    find_staying_runs,
    run_of_partial_file,
    select_kept_runs,
)

NOW = 1_000_000.0


def run_item(name: str, ended: float | None, stays: str = "", job: str = "a") -> CleanItem:
    return CleanItem(kind="run", job=job, name=name, bytes=1, ended=ended, stays=stays, live=False)


@pytest.mark.parametrize(
    ("rules", "stay"),
    [
        (CleanRules(), set()),
        (CleanRules(newest_kept=1), {("a", "3"), ("b", "9")}),
        (CleanRules(newest_kept=2), {("a", "3"), ("a", "2"), ("b", "9")}),
        (CleanRules(min_age_s=150), {("a", "3")}),
        (CleanRules(newest_kept=1, min_age_s=250), {("a", "3"), ("a", "2"), ("b", "9")}),
        (CleanRules(min_age_s=1e9), {("a", "1"), ("a", "2"), ("a", "3"), ("b", "9")}),
    ],
)
def test_newest_run_of_each_job_and_young_runs_are_kept(
    rules: CleanRules, stay: set[tuple[str, str]]
) -> None:
    runs = {
        ("a", "1"): NOW - 300,
        ("a", "2"): NOW - 200,
        ("a", "3"): NOW - 100,
        ("b", "9"): NOW - 999,
    }
    assert select_kept_runs(runs, rules, NOW) == stay


def test_run_alive_on_one_host_is_kept_on_all() -> None:
    by_name = {
        "n1": [run_item("1", NOW - 50)],
        "n2": [run_item("1", None, "it is alive")],
        "n3": [run_item("2", NOW - 50)],
    }
    assert find_staying_runs(by_name, CleanRules(), NOW) == {("a", "1")}


def test_last_host_determines_end_of_run() -> None:
    by_name = {
        "n1": [run_item("1", NOW - 500)],
        "n2": [run_item("1", NOW - 5)],
        "n3": [run_item("2", None)],
    }
    # The age of run "2" is unknown, so the rule that keeps young runs does not apply to it.
    assert find_staying_runs(by_name, CleanRules(min_age_s=100), NOW) == {("a", "1")}


@pytest.mark.parametrize(
    ("name", "run"), [("runs/r1/cwd", "r1"), ("runs/r1", None), ("releases/r1/x", None), ("", None)]
)
def test_run_of_partial_folder(name: str, run: str | None) -> None:
    assert run_of_partial_file(name) == run
