"""Which records of this machine go: those of runs that no host will have any more."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from support.dashboard_scenes import PLAN
from tfdeploy.errors import HostUnreachable
from tfdeploy.model.answers.clean import CleanItem
from tfdeploy.model.clean import Rules
from tfdeploy.model.inventory import Host
from tfdeploy.operations.clean import Found, local_runs
from tfdeploy.store.runs import RunStore

HOSTS = tuple(Host(name=host.host, address=host.host, source="x:1") for host in PLAN.hosts)
NOW = 1_000_000.0


def store_with(folder: Path, *runs: str) -> RunStore:
    store = RunStore(folder)
    for number, run in enumerate(runs):
        store.save(replace(PLAN, run=run, job="a", created=NOW - 1000 + number))
    return store


def run_item(name: str, stays: str = "") -> CleanItem:
    return CleanItem(kind="run", job="a", name=name, bytes=1, ended=NOW - 900, stays=stays, live=bool(stays))


def test_what_goes_from_the_hosts_and_what_they_have_not_is_forgotten(tmp_path: Path) -> None:
    store = store_with(tmp_path, "goes", "alive", "kept", "nowhere")
    rows = (run_item("goes"),)
    found = Found({"n1": rows, "n2": (run_item("goes"),)}, {"n3": (run_item("alive", "it is alive"),)})
    assert set(local_runs(store, found, HOSTS, None, Rules(), NOW)) == {"goes", "kept", "nowhere"}
    assert set(local_runs(store, found, HOSTS, ("b",), Rules(), NOW)) == set()
    assert set(local_runs(store, found, HOSTS, None, Rules(newest=1), NOW)) == {"goes", "kept"}  # the newest of no host stays too


def test_a_host_that_was_not_asked_or_is_down_may_have_it_still(tmp_path: Path) -> None:
    store = store_with(tmp_path, "goes")
    found = Found({"n1": (run_item("goes"),)})
    assert local_runs(store, found, HOSTS[:3], None, Rules(), NOW) == {}
    down = Found({"n1": (run_item("goes"),)}, errors={"n2": HostUnreachable("no answer", where="n2")})
    assert local_runs(store, down, HOSTS, None, Rules(), NOW) == {}
