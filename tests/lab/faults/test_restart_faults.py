"""Test, in each mode, which tasks restart after the death of a task, and in which order.

If a run is stopped, no task restarts.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from support.faults.lines import params
from support.lab.commandline import Tfdeploy
from support.lab.glance import Glance
from support.lab.hosts import on_host, set_inventory
from support.lab.jobs import write_job
from support.lab.remains import assert_nothing_left
from support.lab.run_files import kill, task_folder, task_status
from support.waiting import wait_for
from tfdeploy.lab import Lab

pytestmark = pytest.mark.isolated
SOON_S = 60.0
QUICK = ("quick.py", "--steps=1000000")
ANY = ("any_mode.py", "--steps=1000000")
PROGRAMS = {"async": QUICK, "sync": QUICK, "mirrored": ANY, "coordinator": ANY}
COORDINATOR = {"ps": ["n1"], "chief": ["n2"], "worker": ["n3"]}
ALL = ("ps:0", "worker:0", "worker:1")
# {name: (mode, the task that is killed, the tasks that restart, in this order)}
RULES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "36 async, a worker: it alone": ("async", "worker:1", ("worker:1",)),
    "36 async, the chief: it alone": ("async", "worker:0", ("worker:0",)),
    "36 async, a ps: it alone": ("async", "ps:0", ("ps:0",)),
    "36 sync, a worker: it alone": ("sync", "worker:1", ("worker:1",)),
    "36 sync, the chief: it alone": ("sync", "worker:0", ("worker:0",)),
    "36 sync, a ps: everybody, the ps first": ("sync", "ps:0", ALL),
    "36 mirrored, a worker: everybody at once": ("mirrored", "worker:1", ALL[1:]),
    "36 coordinator, a worker: it alone": ("coordinator", "worker:0", ("worker:0",)),
    "36 coordinator, the chief: it alone": ("coordinator", "chief:0", ("chief:0",)),
    "36 coordinator, a ps: it and the chief, the ps first": (
        "coordinator",
        "ps:0",
        ("ps:0", "chief:0"),
    ),
}
# These rules restart several tasks. test_restarts.py checks the restart of a single task.
CORE = [name for name, (_, _, again) in RULES.items() if len(again) > 1]


@pytest.fixture
def operator(few_hosts: Lab, tfdeploy: Callable[[Lab], Tfdeploy]) -> Tfdeploy:
    return tfdeploy(few_hosts)


def launch(operator: Tfdeploy, run: str, mode: str, **keys: object) -> dict[str, dict[str, Any]]:
    """Launch the run. When all tasks run, return {task: its row of `status`}."""
    if mode == "coordinator":
        set_inventory(operator, roles=COORDINATOR)
    program, *flags = PROGRAMS[mode]
    job = run.rpartition("-")[0]
    restart = {"max": 5, "backoff": ["100ms", "300ms"]}
    write_job(
        operator,
        job,
        program,
        *flags,
        **{"mode": mode, "restart": restart, "stop": {"grace": "2s"}, **keys},
    )
    operator.run("launch", "--detach", "--name", run, exit_code=0)
    return rows(operator, run)


def rows(operator: Tfdeploy, run: str) -> dict[str, dict[str, Any]]:
    return {row["task"]: row for row in operator.json("status", run)["tasks"]}


def times(
    operator: Tfdeploy, run: str, job: str, row: dict[str, Any]
) -> dict[tuple[str, int], float]:
    """Return {(kind, attempt): time} from the journal of that task."""
    text = on_host(
        operator.lab, row["host"], f"cat {task_folder(run, job, row['host'], row['task'])}/journal"
    )
    events = map(json.loads, text.splitlines())
    return {
        (event["what"], event["attempt"]): event["time"] for event in events if "attempt" in event
    }


@pytest.mark.parametrize(("mode", "victim", "again"), params(RULES, core=CORE))
def test_a_death_starts_again_what_the_mode_says_and_in_its_order(
    operator: Tfdeploy, mode: str, victim: str, again: tuple[str, ...]
) -> None:
    job, run = f"rule-{mode}", f"rule-{mode}-{victim.replace(':', '')}"
    before = launch(operator, run, mode)
    kill(operator, before[victim]["host"], before[victim]["pid"])
    glance = Glance(operator.lab, run)

    def run_again() -> dict[str, dict[str, Any]] | None:
        now = rows(operator, run) if glance() else before
        return (
            now
            if all((now[task]["attempt"], now[task]["state"]) == (2, "running") for task in again)
            else None
        )

    now = wait_for(run_again, SOON_S, f"{', '.join(again)} run again")
    assert now is not None
    assert {
        task: row["attempt"] for task, row in now.items() if row["attempt"] > 1
    } == dict.fromkeys(again, 2)
    assert {task: (row["host"], row["address"]) for task, row in now.items()} == {
        task: (row["host"], row["address"]) for task, row in before.items()
    }
    story = {task: times(operator, run, job, now[task]) for task in again}
    last_end = max(each["ended", 1] for each in story.values())
    assert all(each["started", 2] >= last_end for each in story.values()), story
    if len(again) > 1 and again[0] == "ps:0":
        assert all(
            story[task]["started", 2] >= story["ps:0"]["started", 2] for task in again[1:]
        ), story
    operator.run("stop", run, exit_code=0)
    assert_nothing_left(operator, run, job)


@pytest.mark.long
@pytest.mark.fault("52 stop against a restart in flight: waiting for it, starting, up again")
@pytest.mark.parametrize("mode", ["async", "mirrored"])
@pytest.mark.parametrize("moment", ["at once", "once it waits", "once it starts"])
def test_a_stop_wins_against_a_restart(operator: Tfdeploy, mode: str, moment: str) -> None:
    run = f"in-flight-{mode}-{moment.replace(' ', '')}"
    job = run.rpartition("-")[0]
    backoff = ["100ms", "100ms"] if moment == "once it starts" else ["3s", "3s"]
    before = launch(operator, run, mode, restart={"max": 5, "backoff": backoff})["worker:1"]
    kill(operator, before["host"], before["pid"])

    def status() -> dict[str, Any]:
        return task_status(operator, run, job, before["host"], "worker:1")

    if moment == "once it waits":
        wait_for(lambda: status()["state"] == "ended", SOON_S, "it has died")
    if moment == "once it starts":
        wait_for(lambda: status()["attempt"] == 2, SOON_S, "it starts again")
    operator.run("stop", run, exit_code=0)
    # No process can start again without the minder (the process that looks after the run).
    assert_nothing_left(operator, run, job)
    assert operator.state(run) == "stopped"


@pytest.mark.long
@pytest.mark.fault(
    "37 a mirrored gang that crashes in a loop gives up as one, the first death named"
)
def test_a_gang_that_crashes_in_a_loop_gives_up_as_one(operator: Tfdeploy) -> None:
    restart = {"max": 2, "backoff": ["50ms", "100ms"]}
    write_job(
        operator,
        "gang-loop",
        "any_mode.py",
        "--steps=15",
        "--fail=worker:1",
        mode="mirrored",
        restart=restart,
    )
    stderr = operator.run(
        "launch",
        "--wait",
        "--name",
        "gang-loop-1",
        "--",
        "python",
        "any_mode.py",
        "--steps=1000000",
        "--steps_of=worker:1=15",
        "--fail=worker:1",
        exit_code=1,
    ).stderr
    task_rows = rows(operator, "gang-loop-1")
    assert (
        task_rows["worker:1"]["outcome"] == "gave_up" and task_rows["worker:1"]["attempt"] == 3
    ), task_rows
    assert {row["outcome"] for task, row in task_rows.items() if task != "worker:1"} == {
        "stopped"
    }, task_rows
    assert (
        "worker:1 on n3" in stderr.partition("error:")[2] or "worker:1 on n3 gave up" in stderr
    ), stderr
    assert_nothing_left(operator, "gang-loop-1", "gang-loop")
