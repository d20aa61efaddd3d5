"""Test that the same events lead to the same progress, however the events are divided into batches.
In these tests, steps, losses and other figures are read only from lines that programs print. Test
how the total number of steps of a run is read from the flags in its command.
"""

from __future__ import annotations

from typing import Any

import pytest

from support.recorded import fold_events as fold_into
from tfdeploy.agent.metric_reader import compile_patterns
from tfdeploy.model.events import Event, event_from_json, event_to_json
from tfdeploy.model.loglines import last_progress_state
from tfdeploy.model.plan import HostPlan, Plan, TaskPlan, plan_to_json
from tfdeploy.model.progress.run_progress import RunProgress, requested_steps
from tfdeploy.model.progress.task_progress import sum_transfers

PLAN = Plan(
    run="digits-1",
    job="digits",
    mode="async",
    created=1000.0,
    operator="me@here",
    release="abc",
    command=("python", "train.py"),
    cluster={},
    hosts=tuple(
        HostPlan(host=h, address=h, mesh_port=2230, workdir="/w", python="python3")
        for h in ("n1", "n2")
    ),
    tasks=(
        TaskPlan(
            task="ps:0",
            role="ps",
            index=0,
            host="n1",
            address="n1:2222",
            port=2222,
            gpus=(),
            argv=(),
            env={},
            deciding=False,
            why="",
        ),
        TaskPlan(
            task="worker:0",
            role="worker",
            index=0,
            host="n2",
            address="n2:2222",
            port=2222,
            gpus=(0,),
            argv=(),
            env={},
            deciding=True,
            why="",
        ),
    ),
    deciding=("worker:0",),
    flags_appended=(),
    metrics={"accuracy": r"accuracy=([\d.]+)"},
)


def event(
    kind: Any, time: float, host: str | None = None, task: str | None = None, **data: Any
) -> Event:
    return Event(
        kind=kind,
        time=time,
        run="digits-1",
        host=host,
        task=task,
        attempt=1 if task else None,
        data=data,
    )


def line(time: float, text: str, task: str = "worker:0") -> Event:
    return event("line", time, "n2", task, stream="out", line=text, offset=0)


def a_run() -> list[Event]:
    events = [
        event("step", 1000.0, step="lock", state="begin"),
        event("step", 1000.1, step="lock", state="done"),
        event("host", 1000.2, "n1", state="connected"),
        event("transfer", 1001.0, "n1", what="code", sent_bytes=0, total_bytes=1000, state="begin"),
        event(
            "transfer", 1002.0, "n1", what="code", sent_bytes=250, total_bytes=1000, state="moving"
        ),
        Event(kind="plan", time=1003.0, run="digits-1", data=plan_to_json(PLAN)),
        event(
            "task",
            1004.0,
            "n2",
            "worker:0",
            attempt=1,
            state="running",
            up=True,
            pid=42,
            started=1003.5,
        ),
        event("run", 1005.0, state="running"),
        event("note", 1005.0, level="warning", text="a proxy was neutralised"),
    ]
    events += [
        line(1010 + i / 10, f"global step {i * 3} loss: {1 / (i + 1):.4f} accuracy=0.5")
        for i in range(200)
    ]
    events += [
        event(
            "task",
            1031.0,
            "n2",
            "worker:0",
            attempt=1,
            state="ended",
            outcome="failed",
            exit_code=1,
            ended=1030.5,
        ),
        event(
            "task",
            1031.5,
            "n1",
            "ps:0",
            attempt=1,
            state="ended",
            outcome="killed",
            signal=9,
            ended=1031.0,
        ),
    ]
    return events


def picture(progress: RunProgress) -> dict[str, Any]:
    tasks = {
        t.task: (t.state, t.host, t.pid, t.step, t.loss, t.steps_per_s, t.last_line, t.lines)
        for t in progress.tasks.values()
    }
    return {
        "tasks": tasks,
        "cause": progress.cause,
        "state": progress.state,
        "steps": progress.steps,
        "notes": list(progress.notes),
    }


def fold(events: list[Event], plan: Plan | None = PLAN) -> RunProgress:
    return fold_into(RunProgress(plan), events)


def test_figures_of_task() -> None:
    task = fold(a_run()[:-2]).tasks["worker:0"]
    assert (task.step, task.loss, task.lines, task.gpus, task.pid) == (597, 0.005, 200, (0,), 42)
    assert task.steps_per_s == pytest.approx(30, rel=0.05)
    assert task.measures.newest_values["accuracy"] == 0.5


def test_replay_gives_same_progress_and_reading_changes_nothing() -> None:
    live = RunProgress()
    for next_event in a_run():
        fold_into(live, [next_event])
        picture(live)
    replayed = fold([event_from_json(event_to_json(recorded)) for recorded in a_run()])
    assert picture(live) == picture(replayed)


def test_earliest_death_is_cause_until_operation_names_cause() -> None:
    progress = fold(a_run())
    assert progress.cause == "worker:0 on n2 failed with exit code 1"
    assert not progress.is_final
    progress.apply_event(
        event("run", 1040.0, state="failed", cause="worker:0 on n2 failed: out of memory")
    )
    assert progress.is_final
    assert progress.cause == "worker:0 on n2 failed: out of memory"
    assert progress.ended == 1040.0


def test_run_that_continues_has_no_cause() -> None:
    progress = fold(
        [event("run", 1000.0, state="lost", cause="worker:0 on n2 lost: host rebooted")]
    )
    assert progress.cause == "worker:0 on n2 lost: host rebooted"
    progress.apply_event(event("run", 1010.0, state="running", cause=None))
    assert progress.cause is None


def test_success_has_no_cause() -> None:
    progress = fold([*a_run(), event("run", 1040.0, state="succeeded")])
    assert (progress.cause, progress.first_death) == (None, None)


def test_late_event_changes_nothing() -> None:
    progress = fold(a_run())
    progress.apply_event(
        event("task", 1050.0, "n2", "worker:0", attempt=1, state="running", pid=42)
    )
    assert progress.tasks["worker:0"].state == "ended"
    restart_reason = "starts again: killed by signal 9"
    progress.apply_event(
        event(
            "task",
            1050.5,
            "n2",
            "worker:0",
            attempt=1,
            state="pending",
            outcome=None,
            reason=restart_reason,
        )
    )
    progress.apply_event(
        event("task", 1050.6, "n2", "worker:0", attempt=1, state="ended", outcome="killed")
    )
    assert (progress.tasks["worker:0"].state, progress.tasks["worker:0"].reason) == (
        "pending",
        restart_reason,
    )
    progress.apply_event(
        event("task", 1051.0, "n2", "worker:0", attempt=2, state="starting", pid=43, outcome=None)
    )
    task = progress.tasks["worker:0"]
    assert (task.state, task.pid, task.restarts, task.outcome) == ("starting", 43, 1, None)


def test_transfers_have_rate_and_remaining_time() -> None:
    progress = fold(a_run()[:5])
    code = progress.hosts["n1"].transfers["code"]
    assert (code.bytes_per_s, code.remaining_s) == (250.0, 3.0)
    assert sum_transfers([code, code]) == (500, 2000, 500.0, 3.0)
    progress.apply_event(
        event(
            "transfer", 1005.0, "n1", what="code", sent_bytes=1000, total_bytes=1000, state="done"
        )
    )
    assert (code.bytes_per_s, code.remaining_s, code.is_active) == (250.0, None, False)


def test_tasks_of_unreachable_host_are_unreachable() -> None:
    progress = fold(a_run()[:-2])
    task = progress.tasks["worker:0"]
    progress.apply_event(event("host", 1041.0, "n2", state="unreachable", text="no answer"))
    assert progress.health(task) == "unreachable"
    progress.apply_event(event("host", 1042.0, "n2", state="connected"))
    assert progress.health(task) is None


def test_stalled_task_has_reason_until_it_continues() -> None:
    progress = fold(a_run()[:-2])
    task = progress.tasks["worker:0"]
    ill = {
        "attempt": 1,
        "state": "running",
        "health": "stalled",
        "health_reason": "waits for ps:0",
        "health_since": 1001.0,
    }
    progress.apply_event(event("task", 1041.0, "n2", "worker:0", **ill))
    assert (progress.health(task), progress.stalled_because(task, 1041.0)) == (
        "stalled",
        "waits for ps:0 (for 40 s)",
    )
    progress.apply_event(event("host", 1042.0, "n2", state="unreachable", text="no answer"))
    assert progress.health(task) == "unreachable"
    assert str(progress.stalled_because(task, 1042.0)).startswith(
        "when last heard of, stalled: waits for ps:0"
    )
    progress.apply_event(event("host", 1043.0, "n2", state="connected"))
    progress.apply_event(
        event(
            "task",
            1044.0,
            "n2",
            "worker:0",
            **{**dict.fromkeys(ill), "attempt": 1, "state": "running"},
        )
    )
    assert (progress.health(task), progress.stalled_because(task, 1044.0)) == (None, None)


def test_stalled_task_has_no_rate() -> None:
    quiet = [line(1100.0, "waiting"), line(1100.5, "waiting")]
    assert fold(a_run()[:-2] + quiet).tasks["worker:0"].steps_per_s == 0.0


@pytest.mark.parametrize(
    ("text", "step", "loss"),
    [
        ("step 12, loss = 0.5", 12, 0.5),
        ("Step: 1200 Loss: 1e-3", 1200, 0.001),
        ("global_step=7 loss=-.5", 7, -0.5),
        ("\r1/10 step 1 loss: 9\r2/10 step 2 loss: 8\r", 2, 8.0),
        ("step " + "9" * 400, None, None),
        ("x" * 5000 + " step 3", None, None),
        ("steps of losses", None, None),
    ],
)
def test_metrics_in_line(text: str, step: int | None, loss: float | None) -> None:
    task = fold([line(1.0, text)]).tasks["worker:0"]
    assert (task.step, task.loss) == (step, loss)


def test_invalid_patterns_are_ignored() -> None:
    assert list(compile_patterns({"bad": "(", "none": "x", "good": "(x)"})) == ["good"]


def test_progress_bars() -> None:
    assert last_progress_state("a\rb\rc\r") == "c"
    assert last_progress_state("\x08\x08\r 5/10 [==>]\x08\x08") == " 5/10 [==>]"
    assert last_progress_state("plain") == "plain"


def test_use_of_resources_is_known_while_samples_arrive() -> None:
    progress = RunProgress(PLAN)
    host = {"time": 1.0, "gpus": [[0, 80.0, 1 << 30, None], [1, None, None, None]]}
    data = {"host": host, "tasks": {"worker:0": {"time": 1.0, "cpu": 1.5, "memory": 10}}}
    progress.apply_event(
        Event(
            kind="task",
            time=1.0,
            host="n2",
            task="worker:0",
            data={"state": "running", "attempt": 1},
        )
    )
    progress.tasks["worker:0"].gpus = (0, 1, 7)
    progress.apply_event(Event(kind="sample", time=1.0, host="n2", data=data))
    task = progress.tasks["worker:0"]
    assert (task.cpu, task.memory, progress.gpu_use(task)) == (1.5, 10, (80.0, 1 << 30))
    assert progress.tasks["ps:0"].cpu is None
    progress.apply_event(
        Event(kind="sample", time=2.0, host="n2", data={"host": {"time": 2.0}, "tasks": {}})
    )
    assert (task.cpu, task.memory, progress.gpu_use(task)) == (None, None, (None, None))


def test_metrics_of_event_files_stay_until_newer_ones_arrive() -> None:
    progress = RunProgress(PLAN)
    for printed in ({"train/epoch_loss": 0.5}, {}):
        data = {"host": {"time": 1.0}, "tasks": {"worker:0": {"time": 1.0, "printed": printed}}}
        progress.apply_event(Event(kind="sample", time=1.0, host="n2", data=data))
    assert progress.extra_metrics[-1] == "train/epoch_loss"
    assert progress.tasks["worker:0"].measures.newest_values == {"train/epoch_loss": 0.5}


@pytest.mark.parametrize(
    ("words", "goal"),
    [
        (["python", "train.py", "--steps=2000"], 2000),
        (["--train_steps", "10_000"], 10_000),
        (["--max-steps=50", "--steps=50"], 50),
        (["--training_iterations=7"], 7),
        (["--num_steps=5", "--steps=6"], None),  # two flags disagree, so the number is unknown
        (["--step=5"], None),
        (["--save_steps=5"], None),
        (["--steps=many"], None),
        (["--steps"], None),
        ([], None),
    ],
)
def test_goal_in_command(words: list[str], goal: int | None) -> None:
    assert requested_steps(words) == goal
