"""Test which run a name stands for if some hosts do not answer, or if several jobs have a run with
this name.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tfdeploy.errors import HostUnreachable, UsageError
from tfdeploy.model.inventory import Host
from tfdeploy.model.plan import HostPlan, Plan
from tfdeploy.operations.run_lookup import find_run as operations_find_run
from tfdeploy.operations.run_lookup.find_run import FoundRun, find_run
from tfdeploy.operations.run_lookup.host_plans import add_missing_hosts
from tfdeploy.store.runs import RunStore

SILENT = {"n2": HostUnreachable("no route", where="n2")}
FLEET: Any = None


def plan(run: str, host: str, created: float, job: str = "digits") -> Plan:
    return Plan(
        run=run,
        job=job,
        mode="local",
        created=created,
        operator="ml@desk",
        release="r",
        command=("python", "train.py"),
        cluster={},
        hosts=(
            HostPlan(
                host=host,
                address="10.0.0.1",
                mesh_port=2222,
                workdir="/w",
                python="/usr/bin/python3",
            ),
        ),
        tasks=(),
        deciding=(),
        flags_appended=(),
    )


@pytest.fixture
def hosts_know(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function hosts_know(silent, runs...). It sets the runs that hosts report (`runs`),
    and the errors of the hosts that do not answer (`silent`).
    """

    def plan_of_host(fleet: Any, sought: Any) -> Plan:
        return plan(sought.run, "n1", 1.0, sought.job)

    def make_stop_plan(fleet: Any, sought: Any, silent: Any) -> Plan:
        """Return the plan from one host, with all hosts added that did not answer. They are added
        because tfdeploy does not trust a host's plan to name all hosts of the run.
        """
        return add_missing_hosts(plan_of_host(fleet, sought), silent)

    def know(silent: dict[str, HostUnreachable], *runs: FoundRun) -> None:
        monkeypatch.setattr(
            operations_find_run, "find_runs", lambda fleet, hosts, job: (list(runs), silent)
        )
        monkeypatch.setattr(operations_find_run, "make_stop_plan", make_stop_plan)
        monkeypatch.setattr(
            operations_find_run, "fetch_plan", lambda *words: (plan_of_host(*words), {})
        )

    return know


def ended(run: str, started: float) -> FoundRun:
    return FoundRun(run=run, job="digits", starts_by_host={"n1": started}, states={"n1": None})


@pytest.mark.parametrize("live_first", [True, False])
def test_newer_run_of_silent_host_is_chosen(
    hosts_know: Any, tmp_path: Path, live_first: bool
) -> None:
    hosts_know(SILENT, ended("old", 1.0))
    store = RunStore(tmp_path)
    store.save(plan("new", "n2", 9.0))
    assert find_run(FLEET, (), store, prefix=None, job="digits", live_first=live_first).run == "new"


def test_ended_run_is_not_stopped_if_silent_host_may_have_live_run(
    hosts_know: Any, tmp_path: Path
) -> None:
    hosts_know(SILENT, ended("old", 1.0))
    with pytest.raises(HostUnreachable, match="no route"):
        find_run(FLEET, (), RunStore(tmp_path), prefix=None, job="digits", live_first=True)
    assert find_run(FLEET, (), RunStore(tmp_path), prefix=None, job="digits").run == "old"
    hosts_know({}, ended("old", 1.0))
    assert (
        find_run(FLEET, (), RunStore(tmp_path), prefix=None, job="digits", live_first=True).run
        == "old"
    )


def test_damaged_run_is_never_newest_and_is_named(hosts_know: Any, tmp_path: Path) -> None:
    damaged = FoundRun(
        run="spoiled",
        job="digits",
        damaged={"n2": "/w/digits/runs/spoiled: state.json: is damaged"},
    )
    hosts_know({}, damaged, ended("old", 1.0))
    assert (
        find_run(FLEET, (), RunStore(tmp_path), prefix=None, job="digits", live_first=True).run
        == "old"
    )
    with pytest.raises(UsageError, match=r"runs/spoiled: state\.json: is damaged") as caught:
        find_run(FLEET, (), RunStore(tmp_path), prefix="spo", job="digits")
    assert caught.value.where == "n2"


def test_name_used_by_two_jobs_is_run_of_this_job(hosts_know: Any, tmp_path: Path) -> None:
    hosts_know({}, FoundRun(run="same", job="digits", live=True))
    store = RunStore(tmp_path)
    store.save(plan("same", "n1", 9.0, "other"))
    for wanted in ("same", None):
        assert (
            find_run(FLEET, (), store, prefix=wanted, job="digits", live_first=True).job == "digits"
        )
    assert find_run(FLEET, (), store, prefix="same", job="other").job == "other"


@pytest.mark.fault("50 a host is off, and the plan that the others show leaves it out")
@pytest.mark.parametrize("wanted", ["r", None])
def test_silent_host_is_stopped_if_only_hosts_have_plan(
    hosts_know: Any, tmp_path: Path, wanted: Any
) -> None:
    inventory = tuple(
        Host(name=name, address=f"10.0.0.{name[1]}") for name in ("n1", "n2", "n3", "n4")
    )
    hosts_know(
        SILENT,
        FoundRun(
            run="r",
            job="digits",
            live=True,
            holders=["n1"],
            damaged={"n4": "state.json: is damaged"},
        ),
    )
    chosen_run = find_run(
        FLEET, inventory, RunStore(tmp_path), prefix=wanted, job="digits", live_first=True
    )
    assert [(host.host, host.ssh.get("address")) for host in chosen_run.hosts[1:]] == [
        ("n2", "10.0.0.2"),
        ("n4", "10.0.0.4"),
    ]
    assert (
        len(find_run(FLEET, inventory, RunStore(tmp_path), prefix=wanted, job="digits").hosts) == 1
    )
    RunStore(tmp_path).save(plan("r", "n1", 1.0))
    assert (
        len(
            find_run(
                FLEET, inventory, RunStore(tmp_path), prefix=wanted, job="digits", live_first=True
            ).hosts
        )
        == 1
    )


NOW = 1_800_000_000.0


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> float:
    monkeypatch.setattr(operations_find_run.time, "time", lambda: NOW)
    return NOW


@pytest.mark.parametrize(
    ("starts_by_host", "is_newest"),
    [
        ({"n1": NOW - 5.0}, True),
        ({"n1": NOW + 200.0}, True),  # the clocks of n1 and this machine differ
        ({"n1": NOW + 301.0}, False),
        ({"n1": NOW - 50.0, "n2": NOW + 9e8, "n3": NOW - 51.0}, False),  # n2 reports a false time
        ({"n1": NOW - 5.0, "n2": 1.0, "n3": NOW - 6.0}, True),
        ({}, False),
    ],
)
def test_start_of_run_is_decided_by_most_hosts_and_never_in_future(
    hosts_know: Any, tmp_path: Path, now: float, starts_by_host: dict[str, float], is_newest: bool
) -> None:
    warnings: list[str] = []
    asked = FoundRun(run="asked", job="digits", starts_by_host=starts_by_host)
    hosts_know({}, asked, ended("usual", NOW - 10.0))
    chosen_run = find_run(
        FLEET, (), RunStore(tmp_path), prefix=None, job="digits", warnings=warnings
    )
    assert chosen_run.run == ("asked" if is_newest else "usual")
    assert bool(warnings) == ("n1" in asked.hosts_with_future_start) and all(
        "according to n1" in text for text in warnings
    )


def test_age_of_own_run_comes_from_own_record(hosts_know: Any, tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    store.save(plan("own", "n1", NOW))
    hosts_know(
        {}, FoundRun(run="own", job="digits", starts_by_host={"n1": 1.0}), ended("other", NOW - 1e9)
    )
    assert find_run(FLEET, (), store, prefix=None, job="digits").run == "own"


def test_live_run_with_future_start_is_not_stopped_instead_of_another(
    hosts_know: Any, tmp_path: Path, now: float
) -> None:
    late = FoundRun(
        run="late", job="digits", live=True, holders=["n2"], starts_by_host={"n2": NOW + 9e8}
    )
    hosts_know(
        {},
        late,
        FoundRun(
            run="real", job="digits", live=True, holders=["n1"], starts_by_host={"n1": NOW - 9.0}
        ),
    )
    assert (
        find_run(FLEET, (), RunStore(tmp_path), prefix=None, job="digits", live_first=True).run
        == "real"
    )
    two = [
        FoundRun(
            run=f"r{host}",
            job="digits",
            live=True,
            holders=[host],
            starts_by_host={host: NOW - 9.0},
        )
        for host in ("n1", "n2")
    ]
    hosts_know({}, *two)
    with pytest.raises(UsageError, match=r"2 runs are live: rn2 \(on n2\), rn1 \(on n1\)"):
        find_run(FLEET, (), RunStore(tmp_path), prefix=None, job="digits", live_first=True)


def test_job_without_run_is_named_with_way_to_other_jobs(hosts_know: Any, tmp_path: Path) -> None:
    hosts_know({})
    with pytest.raises(UsageError, match="no run of job renamed") as caught:
        find_run(FLEET, (), RunStore(tmp_path), prefix=None, job="renamed")
    assert "`tfdeploy runs --all`" in (caught.value.next or "")
