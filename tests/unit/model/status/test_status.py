"""Test how the state of a run, and the cause of this state, are computed from the states of its
hosts. The tests cover each way in which a run starts and ends.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from support.status_answers import (
    AGAIN,
    DEATH,
    FAILED,
    LATER,
    PLAN,
    RUN,
    RUNNING,
    SUCCEEDED,
    all_of,
    hosts,
    statuses,
)
from tfdeploy.agent.wire import HostRunState
from tfdeploy.model.status.run_status import exit_code, run_view

CASES = {
    "one starts again": (hosts(), AGAIN, (), "running", None),
    "prepared": (hosts("prepared"), {}, (), "starting", None),
    "half prepared": (hosts("prepared", n3=None), {}, (), "starting", None),
    "started": (hosts("started"), all_of("starting"), (), "starting", None),
    "committed, not yet up": (hosts(), all_of("starting"), (), "starting", None),
    "running": (hosts(), RUNNING, (), "running", None),
    "a worker that is done is no end": (
        hosts(),
        RUNNING | statuses(("worker:1", "ended", "succeeded", {})),
        (),
        "running",
        None,
    ),
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
        all_of("ended", "stopped", ended=1005.0)
        | statuses(("worker:0", "ended", "failed", {"ended": 1011.0})),
        (),
        "stopped",
        "stopped by an operator",
    ),
    "stopped while a death was about to start again": (
        hosts("ended", n1={"stop_requested": True}, n2={"stop_requested": True}),
        all_of("ended", "stopped", ended=1012.0)
        | statuses(("worker:0", "ended", "killed", {"ended": 1003.0})),
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
    "success comes before a late stop": (
        hosts("ended", n1={"stop_requested": True}),
        SUCCEEDED,
        (),
        "succeeded",
        None,
    ),
    "a ps that exits 0": (
        hosts(
            "ended",
            n2={
                "first_death": {
                    "task": "ps:0",
                    "host": "n1",
                    "outcome": "succeeded",
                    "exit_code": 0,
                    "time": 1.0,
                }
            },
        ),
        all_of("ended", "stopped"),
        (),
        "failed",
        "ps:0 on n1 ended too early, with exit code 0",
    ),
    "the deciding task ended before it was up": (
        hosts(
            "ended",
            n1={
                "first_death": {
                    "task": "worker:0",
                    "host": "n2",
                    "outcome": "succeeded",
                    "exit_code": 0,
                }
            },
        ),
        SUCCEEDED,
        (),
        "failed",
        "worker:0 on n2 ended too early, with exit code 0",
    ),
    "out of memory": (
        hosts(
            "ended",
            n2={
                "first_death": {
                    "task": "ps:0",
                    "host": "n1",
                    "outcome": "killed",
                    "signal": 9,
                    "reason": "out of memory",
                }
            },
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
    "reboot of every host, minders are gone": (
        hosts(),
        all_of("lost", "lost"),
        (),
        "lost",
        "ps:0 on n1 lost",
    ),
    "a lost host that failed the run": (
        hosts(
            "ended",
            n1={
                "first_death": {
                    "task": "worker:1",
                    "host": "n3",
                    "outcome": "lost",
                    "reason": "host rebooted",
                }
            },
        ),
        all_of("ended", "stopped"),
        (),
        "failed",
        "worker:1 on n3 lost: host rebooted",
    ),
    "no host knows it": (
        hosts(n1=None, n2=None, n3=None),
        {},
        (),
        "lost",
        "no host of this run has a record of the run any more",
    ),
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
        hosts(
            "ended",
            n2=None,
            n1={"ended_tasks": {"worker:0": {"outcome": "succeeded", "time": 1010.0}}},
        ),
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
def test_state_and_cause_of_run(name: str) -> None:
    host_states, tasks, unreachable, state, cause = CASES[name]
    view = run_view(PLAN, host_states, tasks, unreachable=unreachable)
    assert (view.state, view.cause) == (state, cause)
    assert exit_code(view) == (1 if state in ("failed", "stopped", "lost") else 0)
    assert (view.ended is None) <= (not view.is_final or not any(s.ended for s in tasks.values()))


MIRRORED = replace(
    PLAN,
    mode="mirrored",
    tasks=PLAN.tasks[1:],
    deciding=("worker:0", "worker:1"),
    hosts=PLAN.hosts[1:],
)
GOOD = {"exit_code": 0, "ended": 1010.0, "up": True}
BAD = {"exit_code": 3, "ended": 1020.0, "up": True}


@pytest.mark.parametrize(
    ("first_state", "second_state", "phase", "unreachable", "expected"),
    [
        (
            ("ended", "succeeded", GOOD),
            ("ended", "succeeded", GOOD),
            "ended",
            (),
            ("succeeded", None),
        ),
        (
            ("ended", "succeeded", GOOD),
            ("running", None, {"up": True}),
            "committed",
            (),
            ("running", None),
        ),
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
        (
            ("ended", "succeeded", GOOD),
            ("running", None, {}),
            "committed",
            ("n3",),
            ("running", None),
        ),
    ],
)
def test_run_with_several_deciding_tasks(
    first_state: Any, second_state: Any, phase: str, unreachable: Any, expected: Any
) -> None:
    states = {
        name: HostRunState(run=RUN, job="digits", host=name, phase=phase, started=1001.0)
        for name in ("n2", "n3")
    }
    tasks = statuses(("worker:0", *first_state), ("worker:1", *second_state))
    view = run_view(MIRRORED, states, tasks, unreachable=unreachable)
    assert (view.state, view.cause) == expected
