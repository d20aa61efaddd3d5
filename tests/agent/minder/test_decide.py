"""Test the rules by which a host decides whether a run goes on. Each case gives the known facts and
the time, and the actions that are expected.
"""

from __future__ import annotations

from typing import Any

import pytest

from tfdeploy.agent.mesh.shared_state import MAX_ROUND, KnownRunState, next_attempt
from tfdeploy.agent.minder.actions import (
    AbortRun,
    AnnounceCommit,
    EndTask,
    EnterPhase,
    HostRunView,
    LocalTask,
    ReapTask,
    StartTask,
)
from tfdeploy.agent.minder.decide import DECIDED, STOPPED_BY_OPERATOR, decide
from tfdeploy.agent.wire import HostPart, Peer, TaskSpec, TaskStatus

PEERS = [
    Peer(task="ps:0", role="ps", host="n1"),
    Peer(task="worker:0", role="worker", host="n2", deciding=True),
    Peer(task="worker:1", role="worker", host="n1"),
]
PART = HostPart(
    run="r1",
    job="j",
    mode="async",
    host="n1",
    plan_digest="d",
    release="c",
    tasks=[
        TaskSpec(task="ps:0", role="ps", index=0, argv=["x"], env={}),
        TaskSpec(task="worker:1", role="worker", index=1, argv=["x"], env={}),
    ],
    peers=PEERS,
)
GOOD = {"outcome": "succeeded", "time": 50.0, "up": True, "exit_code": 0}
BAD = {"outcome": "failed", "time": 40.0, "exit_code": 1}
LATE_BAD = dict(BAD, time=60.0)
STOP = {"kind": "stop", "reason": STOPPED_BY_OPERATOR, "host": "n1", "time": 1.0, "grace_s": 3.0}


def view(
    phase: str, known: KnownRunState | None = None, words: Any = None, **given: Any
) -> HostRunView:
    """Return what host n1 knows when it decides what to do, 100 s after the start of the clock.

    `ps` and `w1` describe the two tasks of this host, ps:0 and worker:1. Each is (the task's state,
    whether its supervisor is alive, for how many seconds it has logged nothing).
    """
    rows = {
        "ps:0": given.pop("ps", ("running", True, 0.0)),
        "worker:1": given.pop("w1", ("running", True, 0.0)),
    }
    own = {
        task: LocalTask(
            status=TaskStatus(run="r1", task=task, host="n1", state=s),
            is_supervised=alive,
            quiet_s=quiet,
        )
        for task, (s, alive, quiet) in rows.items()
    }
    marks = given.pop("marks", {"prepared": 90.0, "started": 90.0})
    return HostRunView(
        part=PART,
        phase=phase,
        known=known or KnownRunState(),
        local_tasks=own,
        now=100.0,
        time_by_event=marks,
        orders=words or {},
        **given,
    )


def test_what_a_power_cut_took_has_no_attempt_that_others_would_not_believe() -> None:
    known = KnownRunState(
        committed=True,
        ended={
            "worker:1": {"outcome": "killed", "time": 1.0, "attempt": MAX_ROUND, "final": False}
        },
    )
    assert next_attempt(known, "worker:1") == MAX_ROUND


NEW = ("pending", False, 0.0)
DONE = ("ended", False, 0.0)
DECIDED_LONG = {"prepared": 0.0, "started": 0.0, "decided": 30.0}

CASES = {
    "prepared, nothing said": (view("prepared", ps=NEW, w1=NEW), []),
    "prepared, start": (
        view("prepared", words={"start": {}}, ps=NEW, w1=NEW),
        [EnterPhase("started"), StartTask("ps:0"), StartTask("worker:1")],
    ),
    "prepared for too long": (
        view("prepared", ps=NEW, w1=NEW, marks={"prepared": 40.0}),
        [AbortRun("abort", "the run was prepared, but not started within 60 s")],
    ),
    "started, waiting": (view("started"), []),
    "started, commit": (
        view("started", words={"commit": {}}),
        [AnnounceCommit(), EnterPhase("committed")],
    ),
    "started, another host was told": (
        view("started", KnownRunState(committed=True)),
        [AnnounceCommit(), EnterPhase("committed")],
    ),
    "prepared, another host was told": (
        view("prepared", KnownRunState(committed=True), ps=NEW, w1=NEW),
        [],
    ),
    "started for too long": (
        view("started", marks={"started": 40.0}),
        [AbortRun("abort", "the run was started, but its launch was not confirmed within 60 s")],
    ),
    "started, short tasks wait for the commit": (view("started", ps=DONE, w1=DONE), []),
    "a minder took over before all were started": (view("started", ps=NEW), [StartTask("ps:0")]),
    "committed, all well": (view("committed"), []),
    "committed, all done here": (view("committed", ps=DONE, w1=DONE), [EnterPhase("ended")]),
    "a failure anywhere": (
        view("committed", KnownRunState(ended={"worker:0": BAD})),
        [AbortRun("failed", "worker:0 on n2 failed with exit code 1")],
    ),
    "a failure before the commit": (
        view("started", KnownRunState(ended={"worker:0": BAD})),
        [AbortRun("failed", "worker:0 on n2 failed with exit code 1")],
    ),
    "a ps that exits 0": (
        view("committed", KnownRunState(ended={"ps:0": GOOD})),
        [AbortRun("failed", "ps:0 on n1 ended too early, with exit code 0")],
    ),
    "a worker that exits 0 before it was up": (
        view("committed", KnownRunState(ended={"worker:1": dict(GOOD, up=False)}), w1=DONE),
        [AbortRun("failed", "worker:1 on n1 ended too early, with exit code 0")],
    ),
    "the deciding one, not up": (
        view("committed", KnownRunState(ended={"worker:0": dict(GOOD, up=False)})),
        [AbortRun("failed", "worker:0 on n2 ended too early, with exit code 0")],
    ),
    "another worker that exits 0 is done": (
        view("committed", KnownRunState(ended={"worker:1": GOOD}), w1=DONE),
        [],
    ),
    "decided: the grace of the others runs": (
        view(
            "committed",
            KnownRunState(ended={"worker:0": GOOD}),
            marks=dict(DECIDED_LONG, decided=90.0),
            w1=("running", True, 99.0),
        ),
        [],
    ),
    "decided long ago, but it still writes": (
        view(
            "committed",
            KnownRunState(ended={"worker:0": GOOD}),
            marks=DECIDED_LONG,
            w1=("running", True, 1.0),
        ),
        [],
    ),
    "decided, its grace is over; the ps waits for it": (
        view(
            "committed",
            KnownRunState(ended={"worker:0": GOOD}),
            marks=DECIDED_LONG,
            w1=("running", True, 61.0),
        ),
        [EndTask("worker:1", DECIDED, 20.0)],
    ),
    "decided, all workers done: the ps ends": (
        view(
            "committed",
            KnownRunState(ended={"worker:0": GOOD, "worker:1": GOOD}),
            marks=DECIDED_LONG,
            w1=DONE,
        ),
        [EndTask("ps:0", DECIDED, 20.0)],
    ),
    "a failure after the decision undoes nothing": (
        view(
            "committed",
            KnownRunState(ended={"worker:0": GOOD, "worker:1": LATE_BAD}),
            marks=DECIDED_LONG,
            w1=DONE,
        ),
        [EndTask("ps:0", DECIDED, 20.0)],
    ),
    "stop": (
        view("committed", words={"stop": {"grace_s": 3.0}}),
        [AbortRun("stop", STOPPED_BY_OPERATOR, 3.0)],
    ),
    "abort": (
        view("committed", words={"abort": {"reason": "Ctrl-C"}}),
        [AbortRun("abort", "Ctrl-C")],
    ),
    "stop wins over a failure that came with it": (
        view("committed", KnownRunState(ended={"worker:0": BAD}), words={"stop": {}}),
        [AbortRun("stop", STOPPED_BY_OPERATOR, None)],
    ),
    "stopping": (
        view("committed", KnownRunState(abort=STOP)),
        [
            EnterPhase("ending"),
            EndTask("ps:0", STOPPED_BY_OPERATOR, 3.0),
            EndTask("worker:1", STOPPED_BY_OPERATOR, 3.0),
        ],
    ),
    "stopping, now with less patience": (
        view("ending", KnownRunState(abort=STOP), words={"stop": {"grace_s": 0.5}}, ps=DONE),
        [EndTask("worker:1", STOPPED_BY_OPERATOR, 0.5)],
    ),
    "stopped": (view("ending", KnownRunState(abort=STOP), ps=DONE, w1=DONE), [EnterPhase("ended")]),
    "stopped before anything started": (
        view("prepared", KnownRunState(abort=STOP), ps=NEW, w1=NEW),
        [
            EnterPhase("ending"),
            ReapTask(task="ps:0", outcome="stopped", reason=STOPPED_BY_OPERATOR),
            ReapTask(task="worker:1", outcome="stopped", reason=STOPPED_BY_OPERATOR),
        ],
    ),
    "stopped while a supervisor is about to start its task": (
        view("ending", KnownRunState(abort=STOP), ps=DONE, w1=("pending", True, 0.0)),
        [],
    ),
    "a supervisor died": (
        view("committed", ps=("running", False, 0.0)),
        [ReapTask(task="ps:0", outcome="lost", reason="its supervisor was killed")],
    ),
    "a supervisor died while all is being stopped": (
        view("ending", KnownRunState(abort=STOP), ps=("running", False, 0.0)),
        [
            ReapTask(task="ps:0", outcome="stopped", reason=STOPPED_BY_OPERATOR),
            EndTask("worker:1", STOPPED_BY_OPERATOR, 3.0),
        ],
    ),
    "ended is ended": (
        view("ended", KnownRunState(ended={"worker:0": BAD}), words={"stop": {}}),
        [],
    ),
}


# {mode: the tasks of a run}. "!" marks a task whose end decides whether the run has succeeded, and
# "+" a task that serves other tasks. The argument `own` of mode_view() has the tasks of this host.
MODES = {
    "mirrored": "worker:0! worker:1! evaluator:0",
    "coordinator": "ps:0+ chief:0! worker:0+ worker:1+ evaluator:0",
    "ingraph": "chief:0! worker:0+ worker:1+",
    "local": "worker:0!",
}
EARLIER = dict(GOOD, time=45.0)


def mode_view(
    mode: str, own: dict[str, tuple[str, bool, float]], ended: dict[str, Any]
) -> HostRunView:
    """Return what host n1 knows when it decides about a committed run in this mode.

    `ended`: how tasks have ended. If these endings decide the result of the run, the host has known
    the result for 70 s.
    """
    words = [(word.rstrip("!+"), "!" in word, "+" in word) for word in MODES[mode].split()]
    peers = [
        Peer(
            task=task,
            role=task.split(":")[0],
            host="n1" if task in own else "n2",
            deciding=first,
            serves=serves,
        )
        for task, first, serves in words
    ]
    specs = [
        TaskSpec(
            task=task,
            role=task.split(":")[0],
            index=int(task.split(":")[1]),
            argv=["x"],
            env={},
            deciding=first,
            serves=serves,
        )
        for task, first, serves in words
        if task in own
    ]
    part = HostPart(
        run="r1",
        job="j",
        mode=mode,
        host="n1",
        plan_digest="d",
        release="c",
        tasks=specs,
        peers=peers,
    )
    rows = {
        task: LocalTask(
            status=TaskStatus(run="r1", task=task, host="n1", state=state),
            is_supervised=alive,
            quiet_s=quiet,
        )
        for task, (state, alive, quiet) in own.items()
    }
    return HostRunView(
        part=part,
        phase="committed",
        known=KnownRunState(committed=True, abort=None, ended=ended),
        local_tasks=rows,
        now=100.0,
        time_by_event=DECIDED_LONG,
        orders={},
    )


BUSY, QUIET = ("running", True, 0.0), ("running", True, 99.0)
IN_MODES = {
    "mirrored: one of two has succeeded, which decides nothing": (
        "mirrored",
        {"evaluator:0": QUIET},
        {"worker:0": GOOD},
        [],
    ),
    "mirrored: a worker dies after another was done": (
        "mirrored",
        {"worker:0": DONE},
        {"worker:0": EARLIER, "worker:1": LATE_BAD},
        [AbortRun("failed", "worker:1 on n2 failed with exit code 1")],
    ),
    "mirrored: all have succeeded, the evaluator still writes": (
        "mirrored",
        {"evaluator:0": BUSY},
        {"worker:0": GOOD, "worker:1": GOOD},
        [],
    ),
    "mirrored: all have succeeded, the evaluator is quiet": (
        "mirrored",
        {"evaluator:0": QUIET},
        {"worker:0": GOOD, "worker:1": GOOD},
        [EndTask("evaluator:0", DECIDED, 20.0)],
    ),
    "mirrored: an evaluator that fails fails the run": (
        "mirrored",
        {"worker:0": BUSY},
        {"evaluator:0": BAD},
        [AbortRun("failed", "evaluator:0 on n2 failed with exit code 1")],
    ),
    "coordinator: servers wait for the evaluator's grace": (
        "coordinator",
        {"worker:0": QUIET, "ps:0": QUIET},
        {"chief:0": GOOD},
        [],
    ),
    "coordinator: the evaluator is done, the servers end without a grace of their own": (
        "coordinator",
        {"worker:0": BUSY, "ps:0": BUSY},
        {"chief:0": GOOD, "evaluator:0": GOOD},
        [EndTask("ps:0", DECIDED, 20.0), EndTask("worker:0", DECIDED, 20.0)],
    ),
    "coordinator: a worker that exits 0 is no server any more": (
        "coordinator",
        {"ps:0": BUSY},
        {"worker:1": GOOD},
        [AbortRun("failed", "worker:1 on n2 ended too early, with exit code 0")],
    ),
    "ingraph: the client is done, its servers end at once": (
        "ingraph",
        {"chief:0": DONE, "worker:0": BUSY},
        {"chief:0": GOOD},
        [EndTask("worker:0", DECIDED, 20.0)],
    ),
    "ingraph: the client fails": (
        "ingraph",
        {"worker:0": BUSY},
        {"chief:0": BAD},
        [AbortRun("failed", "chief:0 on n2 failed with exit code 1")],
    ),
    "local: done": ("local", {"worker:0": DONE}, {"worker:0": GOOD}, [EnterPhase("ended")]),
    "local: ended before it was up": (
        "local",
        {"worker:0": DONE},
        {"worker:0": dict(GOOD, up=False)},
        [AbortRun("failed", "worker:0 on n1 ended too early, with exit code 0")],
    ),
}


def test_a_worker_that_waits_for_one_that_has_ended_gets_no_grace() -> None:
    """If a worker waits for a task that has ended, the host ends the worker at once: TensorFlow
    creates a session only after all tasks have answered, so the worker would wait forever. If the
    worker waits for a task that will restart, the host does not end the worker.
    """
    waiting = view(
        "committed",
        KnownRunState(committed=True, abort=None, ended={"worker:0": GOOD}),
        marks=DECIDED_LONG,
    )
    own = waiting.local_tasks["worker:1"]

    def waits(*tasks: str, **known: Any) -> list[Any]:
        ended = {**waiting.known.ended, **known}
        rows = {**waiting.local_tasks, "worker:1": own._replace(awaited_tasks=tasks)}
        return decide(
            waiting._replace(
                local_tasks=rows, known=KnownRunState(committed=True, abort=None, ended=ended)
            )
        )

    assert (
        waits()
        == waits("worker:2")
        == waits("worker:2", **{"worker:2": dict(BAD, final=False)})
        == []
    )
    assert (
        waits("worker:0") == waits("worker:2", "worker:0") == [EndTask("worker:1", DECIDED, 20.0)]
    )


@pytest.mark.parametrize("name", IN_MODES)
def test_rule_of_a_mode(name: str) -> None:
    mode, own, ended, expected = IN_MODES[name]
    assert decide(mode_view(mode, own, ended)) == expected


@pytest.mark.parametrize("name", CASES)
def test_rule(name: str) -> None:
    given, expected = CASES[name]
    assert decide(given) == expected


def test_a_silent_host_bounds_the_wait_of_the_ps() -> None:
    peers = [
        Peer(task="ps:0", role="ps", host="n1"),
        Peer(task="worker:0", role="worker", host="n2", deciding=True),
        Peer(task="worker:1", role="worker", host="n3"),
    ]
    part = HostPart(
        run="r1",
        job="j",
        mode="async",
        host="n1",
        plan_digest="d",
        release="c",
        tasks=[TaskSpec(task="ps:0", role="ps", index=0, argv=["x"], env={})],
        peers=peers,
    )
    own = {
        "ps:0": LocalTask(
            status=TaskStatus(run="r1", task="ps:0", host="n1", state="running"), is_supervised=True
        )
    }
    known = KnownRunState(committed=True, abort=None, ended={"worker:0": GOOD})
    for silence_s_by_host, expected in ((79.0, []), (81.0, [EndTask("ps:0", DECIDED, 20.0)])):
        given = HostRunView(
            part=part,
            phase="committed",
            known=known,
            local_tasks=own,
            now=200.0,
            time_by_event={"decided": 100.0},
            orders={},
            silence_s_by_host={"n3": silence_s_by_host},
        )
        assert decide(given) == expected
