"""Test which tasks restart, when and in which order. Each case gives the tasks of this host, what
the host knows about the other tasks, the time, and the actions that are expected.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tfdeploy.agent.mesh.shared_state import MAX_ROUND, KnownRunState, from_json, make_ending
from tfdeploy.agent.minder.actions import (
    Action,
    AnnounceRound,
    EndTask,
    FetchKeepFolders,
    GiveUpTask,
    HostRunView,
    LocalTask,
    ReportStage,
    StartTask,
)
from tfdeploy.agent.minder.restart import (
    CLEARED,
    SERVED,
    SUPPLIED,
    TIME_WAIT_S,
    count_failure,
    decide_restart_actions,
    failed_starts_before,
    make_gang_round,
    restart_reasons,
)
from tfdeploy.agent.wire import HostPart, Peer, TaskSpec, TaskStatus

ROUND = {
    "n": 2,
    "time": 90.0,
    "task": "ps:0",
    "reason": "ps:0 on n1 killed",
    "count": 1,
    "quick": 0,
    "delay_s": 1.0,
}
COUNT = {"attempt": 1, "count": 1, "quick": 1, "delay_s": 1.0}
DEAD: dict[str, Any] = {"state": "ended", "outcome": "killed", "signal": 9}
ERROR = "TypeError: only integers (train.py:88)"
FAILED: dict[str, Any] = {"state": "ended", "outcome": "failed", "exit_code": 1, "reason": ERROR}
TWICE = dict(COUNT, error="TypeError (train.py:88)", same=2)
DONE: dict[str, Any] = {"state": "ended", "outcome": "succeeded", "exit_code": 0, "up": True}
# The tasks of a run in mode sync. If a ps dies, all tasks restart together (as a gang). If a worker
# dies, it restarts alone. n1 has a ps and a worker, and n2 has the chief and a worker.
PEERS = [
    Peer(
        task="ps:0", role="ps", host="n1", deciding=False, serves=True, on_death="gang", gang=True
    ),
    Peer(
        task="worker:0",
        role="worker",
        host="n2",
        deciding=True,
        serves=False,
        on_death="alone",
        gang=True,
    ),
    Peer(
        task="worker:1",
        role="worker",
        host="n1",
        deciding=False,
        serves=False,
        on_death="alone",
        gang=True,
    ),
]
ALL_CLEARED = {"n1": (2, CLEARED), "n2": (2, CLEARED)}
ALL_SUPPLIED = {"n1": (2, SUPPLIED), "n2": (2, SERVED)}
ALL_SERVED = {"n1": (2, SERVED), "n2": (2, SERVED)}
OLD: dict[str, Any] = {"state": "ended", "outcome": "stopped"}
RUNS: dict[str, Any] = {"state": "running", "up": True}


def view(
    ps: dict[str, Any] | None = None,
    w1: dict[str, Any] | None = None,
    *,
    counts: Any = None,
    marks: Any = None,
    supply_from: str | None = None,
    supplied: int = 1,
    same_error_ends: bool = True,
    **known: Any,
) -> HostRunView:
    """Return what host n1 knows when it decides which tasks restart, 100 s after the start of the
    clock. A task that has ended has no supervisor (parent process) any more.
    """
    part = HostPart(
        run="r1",
        job="j",
        mode="sync",
        host="n1",
        plan_digest="d",
        release="c",
        peers=PEERS,
        restart_max=3,
        supply_from=supply_from,
        same_error_ends=same_error_ends,
    )
    part.tasks = [
        TaskSpec(task="ps:0", role="ps", index=0, argv=["x"], env={}, serves=True),
        TaskSpec(task="worker:1", role="worker", index=1, argv=["x"], env={}),
    ]
    own = {}
    for task, given in (("ps:0", ps or RUNS), ("worker:1", w1 or RUNS)):
        status = TaskStatus(run="r1", task=task, host="n1", **{"attempt": 1, **given})
        own[task] = LocalTask(status=status, is_supervised=status.state != "ended")
    heard = KnownRunState(committed=True, **known)
    return HostRunView(
        part=part,
        phase="committed",
        known=heard,
        local_tasks=own,
        now=100.0,
        time_by_event=marks or {},
        orders={},
        restart_counts=counts or {},
        fetched_keep_round=supplied,
    )


CASES: dict[str, tuple[HostRunView, list[Action]]] = {
    "all well": (view(), []),
    "a worker died, not counted yet": (view(w1=DEAD), []),
    "a worker died, its pause is not over": (
        view(w1=DEAD, counts={"worker:1": COUNT}, marks={"again worker:1": 100.5}),
        [],
    ),
    "a worker died, its pause is over": (
        view(w1=DEAD, counts={"worker:1": COUNT}, marks={"again worker:1": 99.0}),
        [StartTask("worker:1", 2, 1)],
    ),
    "a worker died when another was done": (
        view(w1=DEAD, counts={"worker:1": COUNT},
             ended={"worker:0": {"outcome": "succeeded", "time": 9.0, "up": False}}),
        [AnnounceRound(2, "worker:1")],
    ),
    "a worker that is done stays so": (view(w1=DONE), []),
    "a worker that exits 0 before it was up": (
        view(w1=dict(DONE, up=False), counts={"worker:1": COUNT}),
        [StartTask("worker:1", 2, 1)],
    ),
    "once too often": (
        view(w1=DEAD, counts={"worker:1": dict(COUNT, count=4)}),
        [GiveUpTask("worker:1", "killed by signal 9, after 3 restarts (restart.max)")],
    ),
    "twice the same error at its start": (
        view(w1=dict(FAILED, attempt=2), counts={"worker:1": dict(TWICE, attempt=2)}),
        [GiveUpTask("worker:1", "attempts 1 and 2 failed with the same error "
                    f"before their first step: {ERROR}")],
    ),
    "twice the same error, after another death": (
        view(w1=dict(FAILED, attempt=3),
             counts={"worker:1": dict(TWICE, attempt=3, first="killed by signal 9")}),
        [GiveUpTask("worker:1", "attempts 2 and 3 failed with the same error "
                    f"before their first step: {ERROR}; the first death: killed by signal 9")],
    ),
    "too often, in another way than at first": (
        view(w1=FAILED, counts={
            "worker:1": dict(TWICE, same=1, count=4, first="worker:0 on n2 killed by signal 9")}),
        [GiveUpTask("worker:1", f"{ERROR}, after 3 restarts (restart.max); "
                    "the first death: worker:0 on n2 killed by signal 9")],
    ),
    "once that error": (
        view(w1=FAILED, counts={"worker:1": dict(TWICE, same=1)}),
        [StartTask("worker:1", 2, 1)],
    ),
    "twice, but so many starts are asked for": (
        view(w1=FAILED, counts={"worker:1": TWICE}, same_error_ends=False),
        [StartTask("worker:1", 2, 1)],
    ),
    "the gang starts again meanwhile": (
        view(w1=FAILED, counts={"worker:1": TWICE}, round=ROUND),
        [EndTask("ps:0", "all tasks that restart together start again: ps:0 on n1 killed", 5.0)],
    ),
    "given up": (
        view(w1=dict(DEAD, outcome="gave_up"), counts={"worker:1": dict(COUNT, count=4)}),
        [],
    ),
    "a ps breaks the gang": (view(ps=DEAD, counts={"ps:0": COUNT}), [AnnounceRound(2, "ps:0")]),
    "a ps breaks it again": (
        view(ps=dict(DEAD, round=2, attempt=2), w1=dict(RUNS, round=2),
             counts={"ps:0": dict(COUNT, attempt=2)}, round=ROUND, stands=ALL_SERVED),
        [AnnounceRound(3, "ps:0")],
    ),
    "the others of the gang end": (
        view(ps=DEAD, round=ROUND),
        [EndTask(
            "worker:1", "all tasks that restart together start again: ps:0 on n1 killed", 5.0)],
    ),
    "all old ones are gone here": (view(ps=DEAD, w1=OLD, round=ROUND), [ReportStage(2, CLEARED)]),
    "also those that were done": (view(ps=DEAD, w1=DONE, round=ROUND), [ReportStage(2, CLEARED)]),
    "another host has old ones": (
        view(ps=DEAD, w1=OLD, round=ROUND, stands={"n1": (2, CLEARED)}),
        [],
    ),
    "another host has not said anything about this round": (
        view(ps=DEAD, w1=OLD, round=dict(ROUND, n=3),
             stands={"n1": (3, CLEARED), "n2": (2, SERVED)}),
        [],
    ),
    "all are gone, no keep to fetch": (
        view(ps=DEAD, w1=OLD, round=ROUND, stands=ALL_CLEARED),
        [ReportStage(2, SUPPLIED)],
    ),
    "all are gone, the keep comes": (
        view(ps=DEAD, w1=OLD, round=ROUND, stands=ALL_CLEARED, supply_from="n2"),
        [FetchKeepFolders(2)],
    ),
    "all are gone, the keep is ours": (
        view(ps=DEAD, w1=OLD, round=ROUND, stands=ALL_CLEARED, supply_from="n1"),
        [ReportStage(2, SUPPLIED)],
    ),
    "all are gone, the keep has come": (
        view(ps=DEAD, w1=OLD, round=ROUND, stands=ALL_CLEARED, supply_from="n2", supplied=2),
        [ReportStage(2, SUPPLIED)],
    ),
    "servers first": (
        view(ps=DEAD, w1=OLD, round=ROUND, stands=ALL_SUPPLIED),
        [StartTask("ps:0", 2, 2)],
    ),
    "not before the pause is over": (
        view(ps=DEAD, w1=OLD, round=ROUND, stands=ALL_SUPPLIED, marks={"round 2": 100.5}),
        [],
    ),
    "the server is not up": (
        view(ps={"state": "starting", "round": 2}, w1=OLD, round=ROUND, stands=ALL_SUPPLIED),
        [],
    ),
    "the server is up": (
        view(ps=dict(RUNS, round=2), w1=OLD, round=ROUND, stands=ALL_SUPPLIED),
        [ReportStage(2, SERVED)],
    ),
    "the others after it": (
        view(ps=dict(RUNS, round=2, attempt=2), w1=OLD, round=ROUND, stands=ALL_SERVED),
        [StartTask("worker:1", 2, 2)],
    ),
    "decided meanwhile": (
        view(ps=DEAD, w1=DEAD, counts={"ps:0": COUNT, "worker:1": COUNT},
             ended={"worker:0": {"outcome": "succeeded", "time": 50.0, "up": True}}),
        [],
    ),
    "an old success of the chief decides nothing": (
        view(ps=DEAD, w1=OLD, round=ROUND, ended={
            "worker:0": {"outcome": "succeeded", "time": 50.0, "up": True, "round": 1}}),
        [ReportStage(2, CLEARED)],
    ),
    "a host that found it decided has ended, and no new round undoes that": (
        view(ps=DEAD, w1=OLD, round=ROUND, decided=50.0,
             ended={"worker:0": {"outcome": "succeeded", "time": 50.0, "up": True, "round": 1}}),
        [],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_rule(name: str) -> None:
    given, expected = CASES[name]
    assert decide_restart_actions(given) == expected


@pytest.mark.parametrize(
    ("lived_s", "before", "count", "quick", "delay_s"),
    [
        (100.0, None, 1, 0, 1.0),
        (2.0, None, 1, 1, 1.0),
        (2.0, {"count": 1, "quick": 1}, 2, 2, 2.0),
        (2.0, {"count": 2, "quick": 2}, 3, 3, 4.0),
        (2.0, {"count": 9, "quick": 90}, 10, 91, 60.0),
        (30.0, {"count": 2, "quick": 2}, 3, 0, 1.0),
        (700.0, {"count": 3, "quick": 3}, 1, 0, 1.0),
        (None, {"count": 1, "quick": 0}, 2, 1, 1.0),
    ],
)
def test_count(lived_s: float | None, before: Any, count: int, quick: int, delay_s: float) -> None:
    status = TaskStatus(
        run="r1", task="worker:1", host="n1", attempt=5, exit_code=3, lived_s=lived_s
    )
    told = {
        "attempt": 5,
        "round": 1,
        "count": count,
        "quick": quick,
        "delay_s": delay_s,
        "how": "exit code 3",
        "first": "exit code 3",
    }
    assert count_failure(before, status, [1.0, 60.0], 1.0) == told
    assert count_failure(before, status, [1.0, 60.0], 0.0)["delay_s"] == 0.75 * delay_s


@pytest.mark.parametrize(
    ("before", "error", "said"),
    [
        (None, "", {}),
        (None, "E (a:1)", {"error": "E (a:1)", "same": 1}),
        ({}, "OSError: [Errno 98] Address already in use (a:1)", {}),
        ({"error": "E (a:1)", "same": 1}, "E (a:1)", {"error": "E (a:1)", "same": 2}),
        ({"error": "E (a:1)", "same": 2}, "E (a:2)", {"error": "E (a:2)", "same": 1}),
        # If the attempt made steps, or if another task caused the death, the error is "", and the
        # death is not counted.
        ({"error": "E (a:1)", "same": 2}, "", {}),
        # The count before this death has no `error`, because an older version of tfdeploy wrote it.
        ({}, "E (a:1)", {"error": "E (a:1)", "same": 1}),
    ],
)
def test_errors_in_a_row_are_counted(before: Any, error: str, said: dict[str, Any]) -> None:
    status = TaskStatus(run="r1", task="worker:1", host="n1", attempt=2, exit_code=1, error=error)
    count = count_failure(None if before is None else {**COUNT, **before}, status, [1.0, 60.0], 1.0)
    assert {name: count.get(name) for name in ("error", "same") if name in count} == said
    began = make_gang_round(AnnounceRound(2, "worker:1"), status, count)
    assert from_json({"round": dict(began)}, view().part).round == began
    assert {name: began.get(name) for name in said} == said


def test_a_port_in_use_is_tried_again_after_time_wait() -> None:
    in_use = "OSError: [Errno 98] Address already in use (train.py:9)"
    status = TaskStatus(run="r1", task="worker:1", host="n1", attempt=2, exit_code=1, error=in_use)
    assert count_failure(COUNT, status, [1.0, 6.0], 1.0)["delay_s"] == TIME_WAIT_S


def test_the_first_death_stays_known_until_the_count_begins_again() -> None:
    counted: Any = None
    known = KnownRunState()
    for attempt, lived_s, first in (
        (1, 30.0, "killed by signal 9"),
        (2, 2.0, "killed by signal 9"),
        # The end of attempt 3 was not counted, because the task was stopped for another one.
        (4, 2.0, "killed by signal 9"),
        (5, 700.0, ERROR),
    ):
        ending = FAILED if attempt > 1 else DEAD
        status = TaskStatus(
            run="r1", task="ps:0", host="n1", attempt=attempt, lived_s=lived_s, **ending
        )
        counted = count_failure(
            failed_starts_before(PEERS[1], known, counted, attempt), status, [1.0, 60.0], 1.0
        )
        assert counted["first"] == first


def test_the_first_death_of_tasks_that_restart_together_is_named_with_its_task() -> None:
    known, began = KnownRunState(), None
    for number, task, ending in ((2, "ps:0", DEAD), (3, "worker:1", FAILED)):
        status = TaskStatus(run="r1", task=task, host="n1", attempt=number - 1, **ending)
        counted = count_failure(
            failed_starts_before(PEERS[0], known, None, number - 1), status, [1.0, 60.0], 1.0
        )
        began = make_gang_round(AnnounceRound(number, task), status, counted)
        assert began["first"] == "ps:0 on n1 killed by signal 9"
        known = KnownRunState(round=began)
    assert from_json({"round": began}, view().part).round == began


def test_an_attempt_in_between_that_another_task_ended_may_have_worked() -> None:
    counts = dict(TWICE, attempt=3)
    alone, gang = PEERS[1], PEERS[0]
    assert failed_starts_before(alone, KnownRunState(), counts, 4) == counts
    assert "error" not in (failed_starts_before(alone, KnownRunState(), counts, 5) or {})
    assert failed_starts_before(gang, KnownRunState(round=ROUND), counts, 5) == ROUND


def test_no_round_follows_the_last_number_and_no_count_grows_beyond_what_others_believe() -> None:
    """A host that sends false data may set every count and the number of a round (a start of all
    tasks of a gang) to the largest value that others accept. Then no further round follows, and no
    count exceeds this value.
    """
    last = dict(ROUND, n=MAX_ROUND, count=MAX_ROUND, quick=MAX_ROUND)
    seen = view(
        ps=dict(DEAD, round=MAX_ROUND, attempt=2),
        w1=dict(RUNS, round=MAX_ROUND),
        counts={"ps:0": dict(COUNT, attempt=2)},
        round=last,
        stands={"n1": (MAX_ROUND, SERVED), "n2": (MAX_ROUND, SERVED)},
    )
    assert decide_restart_actions(seen) == [
        GiveUpTask(
            "ps:0",
            "killed by signal 9, and a group of tasks restarts together at most 1000000 times",
        )
    ]
    status = TaskStatus(
        run="r1",
        task="ps:0",
        host="n1",
        state="ended",
        outcome="killed",
        attempt=MAX_ROUND + 1,
        started=1.0,
        ended=2.0,
    )
    count = count_failure(last, status, [1.0, 60.0], 1.0)
    told = KnownRunState(
        ended={"ps:0": make_ending(status)},
        round=make_gang_round(AnnounceRound(2, "ps:0"), status, count),
    )
    assert from_json(json.loads(json.dumps(told.as_json())), view().part) == told


def test_words_for_what_starts_again() -> None:
    assert restart_reasons(view(w1=DEAD)) == {"worker:1": "starts again: killed by signal 9"}
    assert restart_reasons(view(ps=DEAD, w1=OLD, round=ROUND)) == dict.fromkeys(
        ("ps:0", "worker:1"), "all tasks that restart together start again: ps:0 on n1 killed"
    )
    waits = restart_reasons(view(ps=DEAD, w1=OLD, round=ROUND, stands={"n1": (2, CLEARED)}))["ps:0"]
    assert (
        waits == "all tasks that restart together start again: ps:0 on n1 killed; "
        "the restart waits until the old tasks on n2 end"
    )
    gone = view(
        ps=DEAD, w1=OLD, round=ROUND, stands={"n1": (2, CLEARED)}, unminded={"n2": (1, 9.0)}
    )
    assert restart_reasons(gone)["ps:0"].endswith(
        "; no process manages the run on n2; the restart waits for a new process there, "
        "but no longer than restart.wait"
    )
    assert restart_reasons(view(w1=DONE)) == {}
    # The count includes only the deaths of earlier attempts, not that of the present attempt.
    used_up = dict(COUNT, attempt=0, count=3)
    assert restart_reasons(view(w1=DEAD, counts={"worker:1": used_up})) == {}
    assert restart_reasons(view(w1=DEAD, counts={"worker:1": dict(COUNT, count=4)})) == {}
