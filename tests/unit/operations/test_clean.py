"""Test which records of runs `clean` removes from this machine: a record is removed if no host has
the run any longer.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from support.dashboard_scenes import PLAN
from tfdeploy.errors import HostUnreachable
from tfdeploy.model.answers.clean import CleanItem, CleanRules
from tfdeploy.model.answers.hosts import LockHolder
from tfdeploy.model.events import Event, Kind
from tfdeploy.model.inventory import Host, ssh_settings_of
from tfdeploy.operations.clean import (
    CleanCandidates,
    LocalRunRecords,
    remove_everything,
    sort_local_runs,
)
from tfdeploy.store.runs import RunStore

HOSTS = tuple(Host(name=host.host, address=host.host, source="x:1") for host in PLAN.hosts)
NOW = 1_000_000.0
HOLDER: LockHolder = {"user": "me", "machine": "m", "pid": 1, "time": 1.0}


def store_with(
    folder: Path, *runs: str, ended: bool = True, hosts: tuple[Host, ...] = HOSTS
) -> RunStore:
    """Return a local store that contains these runs, which were launched on HOSTS. If `ended` is
    True, the store has recorded the end of each run.
    """
    store = RunStore(folder)
    for number, run in enumerate(runs):
        named = tuple(
            replace(plan_host, ssh=ssh_settings_of(host))
            for plan_host, host in zip(PLAN.hosts, hosts, strict=True)
        )
        store.save(replace(PLAN, run=run, job="a", created=NOW - 1000 + number, hosts=named))
        if ended:
            record(store, run, Event(kind="run", time=NOW, run=run, data={"state": "succeeded"}))
    return store


def record(store: RunStore, run: str, *events: Event) -> None:
    with closing(store.event_recorder(run)) as recorder:
        for event in events:
            recorder(event)


def run_item(name: str, stays: str = "") -> CleanItem:
    return CleanItem(
        kind="run", job="a", name=name, bytes=1, ended=NOW - 900, stays=stays, live=bool(stays)
    )


def test_records_of_removed_and_missing_runs_are_removed(tmp_path: Path) -> None:
    store = store_with(tmp_path, "goes", "alive", "kept", "nowhere")
    rows = (run_item("goes"),)
    candidates = CleanCandidates(
        removable_items={"n1": rows, "n2": (run_item("goes"),)},
        staying_items={"n3": (run_item("alive", "it is alive"),)},
    )

    def going(jobs: tuple[str, ...] | None, rules: CleanRules) -> set[str]:
        return set(sort_local_runs(store, candidates, HOSTS, jobs, rules, NOW).removable_records)

    assert going(None, CleanRules()) == {"goes", "kept", "nowhere"}
    assert going(("b",), CleanRules()) == set()
    # The rule "keep the newest run" also keeps the record of a run that no host has any longer.
    assert going(None, CleanRules(newest_kept=1)) == {"goes", "kept"}


def test_run_kept_on_hosts_is_not_listed_as_missing(
    tmp_path: Path,
) -> None:
    store = store_with(tmp_path, "kept", ended=False)
    candidates = CleanCandidates(removable_items={"n1": ()}, kept_runs=frozenset({("a", "kept")}))
    assert (
        sort_local_runs(store, candidates, HOSTS, None, CleanRules(newest_kept=1), NOW)
        == LocalRunRecords()
    )


def test_record_stays_if_host_was_not_asked_or_is_down(tmp_path: Path) -> None:
    store = store_with(tmp_path, "goes")
    candidates = CleanCandidates(removable_items={"n1": (run_item("goes"),)})
    assert sort_local_runs(
        store, candidates, HOSTS[:3], None, CleanRules(), NOW
    ) == LocalRunRecords(runs_with_silent_hosts=("goes",))
    down = CleanCandidates(
        removable_items={"n1": (run_item("goes"),)},
        errors={"n2": HostUnreachable("no answer", where="n2")},
    )
    assert sort_local_runs(store, down, HOSTS, None, CleanRules(), NOW) == LocalRunRecords(
        runs_with_silent_hosts=("goes",)
    )


@pytest.mark.parametrize(
    "change",
    [{"address": "192.0.2.99"}, {"port": 2200}, {"user": "x"}, {"jump": "gate"}, {"workdir": "/w"}],
)
def test_host_with_same_name_and_other_address_was_not_asked(
    tmp_path: Path, change: dict[str, str]
) -> None:
    others = (replace(HOSTS[0], **change), *HOSTS[1:])
    store = store_with(tmp_path, "far", hosts=others)
    assert sort_local_runs(
        store, CleanCandidates(removable_items={}), HOSTS, None, CleanRules(), NOW
    ) == LocalRunRecords(runs_with_silent_hosts=("far",))
    renamed = tuple(replace(host, name="x" + host.name, source="y:1") for host in others)
    assert set(
        sort_local_runs(
            store, CleanCandidates(removable_items={}), renamed, None, CleanRules(), NOW
        ).removable_records
    ) == {"far"}


def test_run_of_other_job_with_same_name_is_ignored(tmp_path: Path) -> None:
    store = store_with(tmp_path, "same", ended=False)
    other = CleanItem(
        kind="run", job="b", name="same", bytes=1, ended=NOW - 900, stays="", live=False
    )
    assert sort_local_runs(
        store, CleanCandidates(removable_items={"n1": (other,)}), HOSTS, None, CleanRules(), NOW
    ).runs_without_end == ("same",)


@pytest.mark.parametrize(
    ("events", "ended"),
    [
        ([], False),
        ([("run", {"state": "running"})], False),
        ([("run", {"state": "running"}), ("run", {"state": "failed"})], True),
        ([("run", {"state": "stopped"})], True),
        ([("run", {"state": "lost"})], False),
        ([("step", {"step": "rollback", "state": "begin"})], False),
        ([("step", {"step": "rollback", "state": "done"})], True),
        ([("step", {"step": "rollback", "state": "done"}), ("run", {"state": "running"})], False),
    ],
)
def test_record_of_run_without_known_end_stays(
    tmp_path: Path, events: list[tuple[Kind, dict[str, str]]], ended: bool
) -> None:
    store = store_with(tmp_path, "r", ended=False)
    record(store, "r", *(Event(kind=kind, time=NOW, run="r", data=data) for kind, data in events))
    runs = sort_local_runs(
        store, CleanCandidates(removable_items={}), HOSTS, None, CleanRules(), NOW
    )
    assert (set(runs.removable_records), runs.runs_without_end) == (
        ({"r"}, ()) if ended else (set(), ("r",))
    )


def test_record_stays_if_one_host_did_not_remove_run(tmp_path: Path) -> None:
    store = store_with(tmp_path, "goes", "half", "again")
    listed = tuple(map(run_item, ("goes", "half", "again")))
    candidates = CleanCandidates(removable_items={"n1": listed, "n2": listed})
    items_by_host = {
        "n1": listed,
        "n2": (
            listed[0],
            run_item("half", "foreign files"),
            run_item("again", "it is gone already"),
        ),
    }
    removed = remove_everything(AnsweringFleet(items_by_host), candidates, HOSTS[:2], HOLDER)
    local = sort_local_runs(store, candidates, HOSTS, None, CleanRules(), NOW)
    assert set(local.removable_records) == {"goes", "half", "again"}
    assert set(local.removable_sizes(removed.job_runs_still_present)) == {"goes", "again"}


class AnsweringFleet:
    """A fake fleet. Each host answers every call with the items that are given for this host."""

    def __init__(self, items_by_host: dict[str, tuple[CleanItem, ...]]) -> None:
        self.told = items_by_host

    def each(self, hosts: tuple[Host, ...], ask: Any) -> dict[str, Any]:
        return {
            host.name: ask(SimpleNamespace(host=host, agent=lambda host=host: self.agent(host)))
            for host in hosts
        }

    def agent(self, host: Host) -> Any:
        return SimpleNamespace(
            stream=lambda *words, **more: [(item, b"") for item in self.told[host.name]]
        )
