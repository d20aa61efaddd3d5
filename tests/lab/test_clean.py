"""Test `tfdeploy clean` on a lab: what the verb removes and what it keeps. It must never remove
anything that is in use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.lab.commandline import Tfdeploy
from support.lab.hosts import on_host
from support.lab.jobs import open_gate, write_job
from support.lab.remains import NO_PORTS, assert_nothing_left
from tfdeploy.lab import Lab
from tfdeploy.model.events import Event
from tfdeploy.store.runs import RunStore


@pytest.fixture(scope="module")
def operator(
    new_lab: Callable[..., Lab], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Tfdeploy]:
    made = Tfdeploy(new_lab("loopback", 2), tmp_path_factory.mktemp("clean") / "operator")
    yield made
    made.end_all()


def launch_until_end(operator: Tfdeploy, job: str, run: str) -> None:
    """Launch the run, and wait until no process of the run is left.

    The minders (the processes that look after the run) outlive it for a moment, in which `clean`
    leaves the run alone.
    """
    operator.run("launch", "--wait", "-q", "--name", run, exit_code=0)
    assert_nothing_left(operator, run, job, ports=NO_PORTS)


def things(said: dict[str, Any], key: str = "removed") -> dict[str, set[str]]:
    """Return {host: its items in the list `key` of the answer, each as "kind name"}."""
    return {
        row["host"]: {f"{each['kind']} {each['name']}" for each in row[key]}
        for row in said["hosts"]
    }


@pytest.mark.fault("67 a clean while a run lives, or another operator launches")
def test_ended_runs_go_and_nothing_that_a_live_run_uses(operator: Tfdeploy) -> None:
    write_job(operator, "tidy", "quick.py", "--gate=5", "--steps=9", keep=["kept"])
    operator.run("launch", "--detach", "-q", "--name", "lives", exit_code=0)
    for name in ("one", "two", "three"):
        write_job(operator, "brief", "quick.py")
        launch_until_end(operator, "brief", name)
    write_job(operator, "tidy", "quick.py", "--gate=5", "--steps=9", keep=["kept"])
    asked = operator.run("clean", exit_code=2)
    assert "there is no terminal to ask on" in asked.stderr

    shown = operator.json("clean", "--all", "--newest", "1", "--dry-run")
    runs = {"run one", "run two"}
    assert [
        each & {"run one", "run two", "run three", "run lives"}
        for each in things(shown, "would_remove").values()
    ][:2] == [
        runs,
        runs,
    ]
    assert not any(things(shown).values())
    assert operator.json("runs", "--all")["runs"][0]["run"] == "three"

    done = operator.json("clean", "--all", "--newest", "1", "-y")
    assert done["ok"] and {"run one", "run two"} <= things(done)["n1"]
    assert things(done)["this machine"] == {"record one", "record two"}
    assert {row["run"] for row in operator.json("runs", "--all")["runs"]} == {"lives", "three"}

    old = operator.json("clean", "--all", "--older", "1d", "-y")
    assert not {"run three", "run lives"} & things(old)["n1"]
    # Without --all, `clean` looks only at the job of this folder. The only run of this job is
    # alive.
    alone = operator.json("clean", "-y")
    assert "run three" not in things(alone)["n1"]
    assert next(task["state"] for task in operator.json("status", "lives")["tasks"]) == "running"
    assert on_host(operator.lab, "n1", "ls ~/tfdeploy/tidy/keep").split() == ["kept"]
    open_gate(operator, "lives", "tidy")
    operator.run("stop", "lives", exit_code=0)
    assert_nothing_left(operator, "lives", "tidy", ports=NO_PORTS)


@pytest.mark.fault("67 a clean while a run lives, or another operator launches")
def test_everything_asks_for_its_word_and_refuses_while_a_run_lives(operator: Tfdeploy) -> None:
    write_job(operator, "tidy", "quick.py", "--gate=5", "--steps=9", keep=["kept"])
    operator.run("launch", "--detach", "-q", "--name", "again", exit_code=0)
    refused = operator.run("clean", "--everything", "-y", stdin="everything\n")
    assert refused.returncode != 0 and "again" in refused.stderr
    operator.run("stop", "again", "--now", exit_code=0)
    assert_nothing_left(operator, "again", "tidy", ports=NO_PORTS)
    wrong = operator.run("clean", "--everything", "-y", stdin="yes\n", exit_code=2)
    assert "the word everything was not typed" in wrong.stderr
    assert "next: `echo everything | tfdeploy clean --everything -y`" in wrong.stderr
    both = operator.run("clean", "--everything", "--newest", "2", "-y", exit_code=2)
    assert "--everything removes everything" in both.stderr
    operator.run("clean", "--everything", "-y", stdin="everything\n", exit_code=0)
    for host in operator.lab.hosts:
        assert on_host(operator.lab, host, "ls -A ~/tfdeploy 2>/dev/null || true").strip() == ""


def test_records_of_other_clusters_and_of_runs_that_may_live_stay(operator: Tfdeploy) -> None:
    """This machine keeps its record of a run on another cluster, even if the hosts of that cluster
    have the same names.

    It also keeps the record of a run of which no host has a trace, because the launch of that run
    may be in progress. If this machine has recorded the end of the run, it removes the record.
    """
    write_job(operator, "memory", "quick.py")
    launch_until_end(operator, "memory", "mine")
    store = RunStore(Path(operator.env["XDG_STATE_HOME"]) / "tfdeploy")
    plan = store.plan("mine")
    assert plan is not None
    others = tuple(replace(host, ssh={**host.ssh, "port": 1}) for host in plan.hosts)
    for run, hosts in (("unseen", plan.hosts), ("gone", plan.hosts), ("foreign", others)):
        store.save(replace(plan, run=run, hosts=hosts))
    with closing(store.event_recorder("gone")) as recorder:
        recorder(Event(kind="run", time=1.0, run="gone", data={"state": "failed"}))
    for args in (["--everything"], ["--all"], []):
        shown = operator.json("clean", *args, "--dry-run")
        assert {"record mine", "record gone"} <= things(shown, "would_remove")["this machine"]
        assert (
            not {"record unseen", "record foreign"} & things(shown, "would_remove")["this machine"]
        )
    stderr = operator.run("clean", "-y", exit_code=0).stderr
    assert "1 record stays (unseen): no host has the run, and its end is not recorded" in stderr
    assert "1 record stays: a host of the run was not asked or did not answer" in stderr
    assert {"unseen", "foreign"} <= set(store.run_ids()) and not {"mine", "gone"} & set(
        store.run_ids()
    )


def test_a_host_that_is_down_is_4_and_the_others_are_cleaned(operator: Tfdeploy) -> None:
    write_job(operator, "brief", "quick.py")
    launch_until_end(operator, "brief", "four")
    operator.lab.kill("n2")
    done = operator.run("clean", "-y", "--json", exit_code=4)
    assert (
        '"run", "job": "brief", "name": "four"' in done.stdout
        and '"host": "n2", "ok": false' in done.stdout
    )
    # n2 may still have the run, so this machine keeps its record.
    assert "record" not in done.stdout.replace('"would', "")
    operator.lab.boot("n2")
