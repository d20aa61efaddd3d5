"""Every way in which a run starts and ends, as rows: what the hosts say -> state and cause."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tfdeploy.agent.wire import HostRunState, TaskStatus
from tfdeploy.model.plan import HostPlan, Plan, TaskPlan
from tfdeploy.model.status import exit_code, run_view, run_view_json
from tfdeploy.model.words import iso_z

RUN = "digits-20261121-101500-3fa1"


def task(name: str, host: str, port: int, gpus: tuple[int, ...] = ()) -> TaskPlan:
    role, index = name.split(":")
    return TaskPlan(
        task=name,
        role=role,
        index=int(index),
        host=host,
        address=f"192.0.2.1:{port}",
        port=port,
        gpus=gpus,
        argv=("python",),
        env={},
        deciding=name == "worker:0",
        why="",
    )


PLAN = Plan(
    run=RUN,
    job="digits",
    mode="async",
    created=1000.0,
    operator="me@here",
    release="abc",
    command=("python", "train.py"),
    cluster={},
    hosts=tuple(HostPlan(host=h, address=h, mesh_port=2230, workdir="/w", python="python3") for h in ("n1", "n2", "n3")),
    tasks=(task("ps:0", "n1", 2222), task("worker:0", "n2", 2223, (0,)), task("worker:1", "n3", 2223)),
    deciding=("worker:0",),
    flags_appended=(),
)
WHERE = {t.task: t.host for t in PLAN.tasks}


def hosts(phase: str = "committed", **per_host: dict[str, Any] | None) -> dict[str, HostRunState | None]:
    states: dict[str, HostRunState | None] = {}
    for name in ("n1", "n2", "n3"):
        given = per_host.get(name, {})
        states[name] = (
            None
            if given is None
            else HostRunState(run=RUN, job="digits", host=name, **{"phase": phase, "started": 1001.0, **given})
        )
    return states


def statuses(*rows: tuple[str, str, str | None, dict[str, Any]]) -> dict[str, TaskStatus]:
    return {n: TaskStatus(run=RUN, task=n, host=WHERE[n], attempt=1, state=s, outcome=o, **more) for n, s, o, more in rows}


def all_of(state: str, outcome: str | None = None, **more: Any) -> dict[str, TaskStatus]:
    return statuses(*((name, state, outcome, more) for name in WHERE))


RUNNING = all_of("running", up=True)
SUCCEEDED = statuses(
    ("ps:0", "ended", "stopped", {"ended": 1012.0}),
    ("worker:0", "ended", "succeeded", {"exit_code": 0, "ended": 1010.0}),
    ("worker:1", "ended", "succeeded", {"exit_code": 0, "ended": 1009.0}),
)
FAILED = statuses(
    ("ps:0", "ended", "stopped", {"ended": 1012.0}),
    ("worker:0", "ended", "failed", {"exit_code": 1, "ended": 1011.0}),
    ("worker:1", "ended", "failed", {"exit_code": 3, "ended": 1009.0}),
)
DEATH = {"task": "worker:1", "host": "n3", "outcome": "failed", "exit_code": 3, "time": 1009.0}
LATER = {"task": "worker:0", "host": "n2", "outcome": "failed", "exit_code": 1, "time": 1011.0}
OOM = {"task": "ps:0", "host": "n1", "outcome": "killed", "signal": 9, "reason": "out of memory"}

AGAIN = RUNNING | statuses(("worker:1", "pending", None, {"reason": "starts again: exit code 3"}))

CASES = {
    "one starts again": (hosts(), AGAIN, (), "running", None),
    "prepared": (hosts("prepared"), {}, (), "starting", None),
    "half prepared": (hosts("prepared", n3=None), {}, (), "starting", None),
    "started": (hosts("started"), all_of("starting"), (), "starting", None),
    "committed, not yet up": (hosts(), all_of("starting"), (), "starting", None),
    "running": (hosts(), RUNNING, (), "running", None),
    "a worker that is done is no end": (hosts(), RUNNING | statuses(("worker:1", "ended", "succeeded", {})), (), "running", None),
    "the deciding task is done, the rest is not": (
        hosts(n2={"phase": "ended"}),
        SUCCEEDED | statuses(("ps:0", "running", None, {"up": True})),
        (),
        "running",
        None,
    ),
    "succeeded": (hosts("ended"), SUCCEEDED, (), "succeeded", None),
    "first death in time, whoever reports it": (
        hosts("ended", n1={"first_death": LATER}, n2={"first_death": DEATH}),
        FAILED,
        (),
        "failed",
        "worker:1 on n3 failed with exit code 3",
    ),
    "failing, cause known before the end": (
        hosts("ending", n1={"first_death": DEATH}),
        FAILED | statuses(("ps:0", "running", None, {"up": True})),
        (),
        "running",
        "worker:1 on n3 failed with exit code 3",
    ),
    "no minder spoke": (
        hosts("ended"),
        FAILED,
        (),
        "failed",
        "worker:1 on n3 failed with exit code 3",
    ),
    "abort": (
        hosts("ended", n1={"abort_reason": "no commit within 60 s"}),
        all_of("ended", "stopped", ended=1005.0),
        (),
        "failed",
        "no commit within 60 s",
    ),
    "stopped by an operator": (
        hosts("ended", n1={"stop_requested": True}, n2={"stop_requested": True}),
        all_of("ended", "stopped", ended=1005.0),
        (),
        "stopped",
        "stopped by an operator",
    ),
    "collateral of a stop is no failure": (
        hosts("ended", n1={"stop_requested": True}, n2={"first_death": LATER}),
        all_of("ended", "stopped", ended=1005.0) | statuses(("worker:0", "ended", "failed", {"ended": 1011.0})),
        (),
        "stopped",
        "stopped by an operator",
    ),
    "stopped while a death was about to start again": (
        hosts("ended", n1={"stop_requested": True}, n2={"stop_requested": True}),
        all_of("ended", "stopped", ended=1012.0) | statuses(("worker:0", "ended", "killed", {"ended": 1003.0})),
        (),
        "stopped",
        "stopped by an operator",
    ),
    "failed before it was stopped": (
        hosts("ended", n1={"stop_requested": True, "first_death": DEATH}),
        FAILED,
        (),
        "failed",
        "worker:1 on n3 failed with exit code 3",
    ),
    "success comes before a late stop": (hosts("ended", n1={"stop_requested": True}), SUCCEEDED, (), "succeeded", None),
    "a ps that exits 0": (
        hosts("ended", n2={"first_death": {"task": "ps:0", "host": "n1", "outcome": "succeeded", "exit_code": 0, "time": 1.0}}),
        all_of("ended", "stopped"),
        (),
        "failed",
        "ps:0 on n1 ended too early, with exit code 0",
    ),
    "the deciding task ended before it was up": (
        hosts("ended", n1={"first_death": {"task": "worker:0", "host": "n2", "outcome": "succeeded", "exit_code": 0}}),
        SUCCEEDED,
        (),
        "failed",
        "worker:0 on n2 ended too early, with exit code 0",
    ),
    "out of memory": (
        hosts(
            "ended",
            n2={"first_death": {"task": "ps:0", "host": "n1", "outcome": "killed", "signal": 9, "reason": "out of memory"}},
        ),
        all_of("ended", "stopped"),
        (),
        "failed",
        "ps:0 on n1 killed: out of memory",
    ),
    "lost": (
        hosts("ended"),
        all_of("lost", "lost", reason="host rebooted"),
        (),
        "lost",
        "ps:0 on n1 lost: host rebooted",
    ),
    "reboot of every host, minders are gone": (hosts(), all_of("lost", "lost"), (), "lost", "ps:0 on n1 lost"),
    "a lost host that failed the run": (
        hosts("ended", n1={"first_death": {"task": "worker:1", "host": "n3", "outcome": "lost", "reason": "host rebooted"}}),
        all_of("ended", "stopped"),
        (),
        "failed",
        "worker:1 on n3 lost: host rebooted",
    ),
    "no host knows it": (hosts(n1=None, n2=None, n3=None), {}, (), "lost", "no host of this run knows it any more"),
    "one unreachable, the rest runs": (
        hosts(n3=None),
        {n: s for n, s in RUNNING.items() if n != "worker:1"},
        ("n3",),
        "running",
        None,
    ),
    "one unreachable, the rest has ended well": (
        hosts("ended", n1={"phase": "committed"}),
        SUCCEEDED | statuses(("ps:0", "running", None, {"up": True})),
        ("n1",),
        "succeeded",
        None,
    ),
    "the deciding host is unreachable, its peer heard the end": (
        hosts("ended", n2=None, n1={"ended_tasks": {"worker:0": {"outcome": "succeeded", "time": 1010.0}}}),
        {n: s for n, s in SUCCEEDED.items() if n != "worker:0"},
        ("n2",),
        "succeeded",
        None,
    ),
    "all cut off, last known to run": (hosts(), RUNNING, ("n1", "n2", "n3"), "running", None),
    "nobody answers": (
        hosts(n1=None, n2=None, n3=None),
        {},
        ("n1", "n2", "n3"),
        "lost",
        "cannot be reached: n1, n2, n3; how the run ended is not known",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_state_and_cause(name: str) -> None:
    host_states, tasks, unreachable, state, cause = CASES[name]
    view = run_view(PLAN, host_states, tasks, unreachable=unreachable)
    assert (view.state, view.cause) == (state, cause)
    assert exit_code(view) == (1 if state in ("failed", "stopped", "lost") else 0)
    assert (view.ended is None) <= (not view.final or not any(s.ended for s in tasks.values()))


MIRRORED = replace(PLAN, mode="mirrored", tasks=PLAN.tasks[1:], deciding=("worker:0", "worker:1"), hosts=PLAN.hosts[1:])
GOOD = {"exit_code": 0, "ended": 1010.0, "up": True}
BAD = {"exit_code": 3, "ended": 1020.0, "up": True}


@pytest.mark.parametrize(
    ("one", "other", "phase", "unreachable", "expected"),
    [
        (("ended", "succeeded", GOOD), ("ended", "succeeded", GOOD), "ended", (), ("succeeded", None)),
        (("ended", "succeeded", GOOD), ("running", None, {"up": True}), "committed", (), ("running", None)),
        (
            ("ended", "succeeded", GOOD),
            ("ended", "failed", BAD),
            "ended",
            (),
            ("failed", "worker:1 on n3 failed with exit code 3"),
        ),
        (
            ("ended", "failed", BAD),
            ("ended", "succeeded", GOOD),
            "ended",
            (),
            ("failed", "worker:0 on n2 failed with exit code 3"),
        ),
        (("ended", "succeeded", GOOD), ("running", None, {}), "committed", ("n3",), ("running", None)),
    ],
)
def test_a_run_that_several_tasks_decide(one: Any, other: Any, phase: str, unreachable: Any, expected: Any) -> None:
    states = {name: HostRunState(run=RUN, job="digits", host=name, phase=phase, started=1001.0) for name in ("n2", "n3")}
    tasks = statuses(("worker:0", *one), ("worker:1", *other))
    view = run_view(MIRRORED, states, tasks, unreachable=unreachable)
    assert (view.state, view.cause) == expected


def test_unreachable_tasks_say_so_and_keep_what_was_known() -> None:
    view = run_view(PLAN, hosts(), RUNNING, unreachable=["n3"])
    assert [(t.state, t.health) for t in view.tasks] == [("running", None), ("running", None), ("running", "unreachable")]
    assert view.unreachable == ("n3",)


def test_an_unreachable_host_where_nobody_minds_the_run_has_lost_its_task() -> None:
    states = hosts(n2={"unminded": {"n3": 1005.0}})
    view = run_view(PLAN, states, RUNNING, unreachable=["n3"])
    shown = {t.task: (t.state, t.outcome, t.health, t.reason) for t in view.tasks}
    assert shown["worker:1"] == ("lost", "lost", "unreachable", "nobody minds it, the other hosts say")
    assert (shown["worker:0"][0], view.state, view.cause) == (
        "running",
        "running",
        "worker:1 on n3 lost: nobody minds it, the other hosts say",
    )
    assert run_view(PLAN, states, RUNNING).tasks[2].state == "running"  # it says so itself: somebody does again


def test_a_stalled_task_says_why_and_since_when_and_an_unreachable_one_what_it_was() -> None:
    running = RUNNING["worker:1"]
    ill = TaskStatus(**{**vars(running), "health": "stalled", "health_reason": "waits for ps:0", "health_since": 1001.4})
    view = run_view(PLAN, hosts(), {**RUNNING, "worker:1": ill})
    assert (view.state, view.tasks[2].health) == ("running", "stalled")
    assert view.tasks[2].reason == "waits for ps:0 (since 1970-01-01T00:16:41Z)"
    assert [row["health"] for row in run_view_json(view)["tasks"]] == [None, None, "stalled"]
    gone = run_view(PLAN, hosts(), {**RUNNING, "worker:1": ill}, unreachable=["n3"]).tasks[2]
    assert gone.health == "unreachable"
    assert gone.reason == "when last heard of, stalled: waits for ps:0 (since 1970-01-01T00:16:41Z)"


def test_what_died_after_the_first_death_says_so() -> None:
    view = run_view(PLAN, hosts("ended"), FAILED)
    assert {task.task: task.reason for task in view.tasks} == {"ps:0": None, "worker:0": "after worker:1 died", "worker:1": None}


def test_json_is_the_contract() -> None:
    metrics = {"worker:0": {"step": 1200.0, "loss": 0.31, "accuracy": 0.5}}
    running = statuses(("worker:0", "running", None, {"pid": 4242, "started": 1002.5, "up": True}))
    view = run_view(PLAN, hosts(), RUNNING | running, metrics=metrics)
    assert view.tasks[1].metrics == {"accuracy": 0.5}  # for people; the JSON is the contract's
    fields = json.loads(json.dumps(run_view_json(view)))
    rows = fields.pop("tasks")
    assert fields == {
        "run": RUN,
        "job": "digits",
        "mode": "async",
        "state": "running",
        "started": "1970-01-01T00:16:41Z",
        "ended": None,
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
        "started": "1970-01-01T00:16:42.500Z",
        "ended": None,
        "reason": None,
    }


def test_times() -> None:
    assert iso_z(None) is None
    assert iso_z(0) == "1970-01-01T00:00:00Z"
    assert iso_z(0.9999) == "1970-01-01T00:00:01Z"


def test_of_hosts_that_were_not_asked_nothing_is_said() -> None:
    view = run_view(PLAN, {"n3": hosts("ended")["n3"]}, {"worker:1": SUCCEEDED["worker:1"]}, unasked={"n1", "n2"})
    assert [task.task for task in view.tasks] == ["worker:1"]
    assert view.unasked == ("n1", "n2")
    assert not view.unreachable
    assert (view.state, view.cause) == ("lost", "not asked: n1, n2; how the run ended is not known")


def test_a_run_that_goes_on_where_it_was_asked_goes_on() -> None:
    view = run_view(PLAN, {"n3": hosts()["n3"]}, {"worker:1": RUNNING["worker:1"]}, unasked={"n1", "n2"})
    assert (view.state, view.cause, [task.health for task in view.tasks]) == ("running", None, [None])
