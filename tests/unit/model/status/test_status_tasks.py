"""Test the status of each task (unreachable, stalled, dead because of another task), and its JSON
form.
"""

from __future__ import annotations

import io
import json
from dataclasses import replace

from support.status_answers import FAILED, PLAN, RUN, RUNNING, SUCCEEDED, hosts, statuses
from tfdeploy.agent.wire import TaskStatus
from tfdeploy.model.job import Protection
from tfdeploy.model.status.run_status import run_view, run_view_json
from tfdeploy.text.row_values import iso_z
from tfdeploy.ui.reports import show_status
from tfdeploy.ui.terminal import Terminal


def test_unreachable_tasks_keep_last_known_state() -> None:
    view = run_view(PLAN, hosts(), RUNNING, unreachable=["n3"])
    assert [(t.state, t.health) for t in view.tasks] == [
        ("running", None),
        ("running", None),
        ("running", "unreachable"),
    ]
    assert view.unreachable == ("n3",)


def test_task_without_minder_on_unreachable_host_is_lost() -> None:
    states = hosts(n2={"unminded": {"n3": 1005.0}})
    view = run_view(PLAN, states, RUNNING, unreachable=["n3"])
    shown = {t.task: (t.state, t.outcome, t.health, t.reason) for t in view.tasks}
    assert shown["worker:1"] == (
        "lost",
        "lost",
        "unreachable",
        "the other hosts report that no process of tfdeploy supervises the task",
    )
    assert (shown["worker:0"][0], view.state, view.cause) == (
        "running",
        "running",
        "worker:1 on n3 lost: the other hosts report that no process of tfdeploy supervises the "
        "task",
    )
    # The host of worker:1 now reports the task as running. This report has more weight than the
    # reports of other hosts.
    assert run_view(PLAN, states, RUNNING).tasks[2].state == "running"


def test_task_whose_files_were_removed_says_so() -> None:
    running = {task: status for task, status in RUNNING.items() if task != "worker:1"}
    view = run_view(PLAN, {**hosts(), "n3": None}, running)
    assert [(t.state, t.reason) for t in view.tasks] == [
        ("running", None),
        ("running", None),
        ("lost", "the run's files on n3 were removed"),
    ]
    assert (view.state, view.cause) == (
        "running",
        "worker:1 on n3 lost: the run's files on n3 were removed",
    )


def test_stalled_task_has_reason_and_time_and_unreachable_task_has_last_state() -> None:
    running = RUNNING["worker:1"]
    ill = TaskStatus(
        **{
            **vars(running),
            "health": "stalled",
            "health_reason": "waits for ps:0",
            "health_since": 1001.4,
        }
    )
    view = run_view(PLAN, hosts(), {**RUNNING, "worker:1": ill})
    assert (view.state, view.tasks[2].health) == ("running", "stalled")
    assert view.tasks[2].reason == "waits for ps:0 (since 1970-01-01T00:16:41Z)"
    assert [row["health"] for row in run_view_json(view)["tasks"]] == [None, None, "stalled"]
    unreachable_task = run_view(
        PLAN, hosts(), {**RUNNING, "worker:1": ill}, unreachable=["n3"]
    ).tasks[2]
    assert unreachable_task.health == "unreachable"
    assert (
        unreachable_task.reason
        == "when last heard of, stalled: waits for ps:0 (since 1970-01-01T00:16:41Z)"
    )


def test_task_that_died_later_names_first_death() -> None:
    view = run_view(PLAN, hosts("ended"), FAILED)
    assert {task.task: task.reason for task in view.tasks} == {
        "ps:0": None,
        "worker:0": "after worker:1 died",
        "worker:1": None,
    }


def test_json_matches_contract() -> None:
    metrics = {"worker:0": {"step": 1200.0, "loss": 0.31, "accuracy": 0.5}}
    running = statuses(("worker:0", "running", None, {"pid": 4242, "started": 1002.5, "up": True}))
    view = run_view(PLAN, hosts(), RUNNING | running, metrics=metrics)
    assert view.tasks[1].metrics == {"accuracy": 0.5}
    fields = json.loads(json.dumps(run_view_json(view)))
    rows = fields.pop("tasks")
    assert fields == {
        "run": RUN,
        "job": "digits",
        "mode": "async",
        "state": "running",
        "started": "1970-01-01T00:16:40Z",
        "ended": None,
        "protect": {
            "asked": "none",
            "used": "none",
            "why": "launched by a version that left ports open",
            "hosts": {},
            "admitted": [],
            "not_admitted": [],
        },
    }
    assert rows[1] == {
        "task": "worker:0",
        "host": "n2",
        "state": "running",
        "health": None,
        "outcome": None,
        "exit_code": None,
        "signal": None,
        "pid": 4242,
        "address": "192.0.2.1:2223",
        "gpus": [0],
        "attempt": 1,
        "restarts": 0,
        "step": 1200,
        "loss": 0.31,
        "metrics": {"accuracy": 0.5},
        "metrics_unread": [],
        "started": "1970-01-01T00:16:42.500Z",
        "ended": None,
        "reason": None,
    }


def test_iso_times() -> None:
    assert iso_z(None) is None
    assert iso_z(0) == "1970-01-01T00:00:00Z"
    assert iso_z(0.9999) == "1970-01-01T00:00:01Z"


def test_tasks_of_hosts_that_were_not_asked_are_not_listed() -> None:
    view = run_view(
        PLAN,
        {"n3": hosts("ended")["n3"]},
        {"worker:1": SUCCEEDED["worker:1"]},
        unasked={"n1", "n2"},
    )
    assert [task.task for task in view.tasks] == ["worker:1"]
    assert view.unasked == ("n1", "n2")
    assert not view.unreachable
    assert (view.state, view.cause) == ("lost", "not asked: n1, n2; how the run ended is not known")


def test_run_is_running_if_asked_hosts_run_it() -> None:
    view = run_view(
        PLAN, {"n3": hosts()["n3"]}, {"worker:1": RUNNING["worker:1"]}, unasked={"n1", "n2"}
    )
    assert (view.state, view.cause, [task.health for task in view.tasks]) == (
        "running",
        None,
        [None],
    )


def test_admitted_and_rejected_connections_are_shown() -> None:
    admitted = {"10.0.0.7": "n3", "no address": "n3", "10.0.0.8": "\x1b[2J", "10.0.0.9": ""}
    states = hosts(n2={"admitted": admitted, "not_admitted": {"n3": "10.0.0.66"}})
    protection = Protection(
        "auto", "none", "peers: n3: no filter", {"n1": "firewall", "n2": "peers", "n3": "none"}
    )
    view = run_view(replace(PLAN, protect=protection), states, RUNNING)
    assert run_view_json(view)["protect"] == {
        "asked": "auto",
        "used": "none",
        "why": "peers: n3: no filter; n3 connected to n2 from 10.0.0.66, which is not an address "
        "of n3: the tasks' ports on n2 do not admit this address",
        "hosts": {"n1": "firewall", "n2": "peers", "n3": "none"},
        "admitted": [{"host": "n2", "address": "10.0.0.7", "of": "n3"}],
        "not_admitted": [{"host": "n2", "address": "10.0.0.66", "of": "n3"}],
    }
    out = io.StringIO()
    show_status(Terminal(out, None, False), view, now=2000.0)
    for line in (
        "protect: firewall on n1, peers on n2, none on n3",
        "admitted: 10.0.0.7 of n3, on n2",
        "not admitted: n3 connected to n2 from 10.0.0.66",
    ):
        assert line in out.getvalue(), out.getvalue()
    assert (
        protection.level_of("n2") == "peers" and Protection(used="peers").level_of("n2") == "peers"
    )
