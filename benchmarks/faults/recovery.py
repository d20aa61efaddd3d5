"""Measure how soon a client that watches a run sees a task's death, and how soon the task restarts.

    python benchmarks/faults/recovery.py --deaths 20

There are two cases: a task that restarts alone, and three tasks that restart together (a gang)
while no client is connected. The programs do not use TensorFlow, and run on isolated hosts with the
default backoff of `restart`, whose first pause is 1 s. Each program is killed only after more
than 10 s, because after a shorter attempt the pause would grow.
"""

from __future__ import annotations

import json
import sys
import time

from misfortune import Events, Tfdeploy, figure, operators, options, spread

from support.waiting import wait_for  # isort: skip
from support.lab.hosts import on_host  # isort: skip
from support.lab.jobs import write_job  # isort: skip
from support.lab.run_files import kill, task_folder, task_status  # isort: skip

JOB = "recovery"
PLACES = {"n2": "worker:0", "n3": "worker:1", "n4": "worker:2"}
LIVED_S = 10.5
SEEN_S = 60.0


def main() -> int:
    args = options(__doc__, deaths=20)
    with operators(4) as (operator,):
        shown, begun = alone(operator, args.deaths)
        together = gang(operator, args.deaths)
    figure("deaths, alone and of a gang", 2 * args.deaths)
    figure("async, watched: the death is shown", spread(shown))
    figure("async, watched: the next attempt has begun", spread(begun))
    figure("mirrored gang of 3, nobody attached: all have begun again", spread(together))
    return 0


def alone(operator: Tfdeploy, deaths: int) -> tuple[list[float], list[float]]:
    """Kill worker:1 `deaths` times. Return, for each kill, the seconds until the client's events
    show the end of the attempt, and the seconds until they show the next attempt."""
    run, task, host = f"{JOB}-alone", "worker:1", "n3"
    write_job(operator, JOB, "quick.py", "--steps=1000000000", "--pause=0.2", restart={"max": 1000})
    path = operator.home / "events"
    operator.start("launch", "--wait", "--name", run, "--events", str(path))
    events, shown, begun = Events(path), [], []
    for attempt in range(1, deaths + 1):
        _wait_lived(operator, run, attempt, {host: task})
        pid = task_status(operator, run, JOB, host, task)["pid"]
        died = time.monotonic()
        kill(operator, host, pid)
        for times, states, of in (
            (shown, ("ended", "pending"), attempt),
            (begun, ("starting", "running"), attempt + 1),
        ):
            _wait_event(events, task, states, of)
            times.append(time.monotonic() - died)
    operator.run("stop", run, "--now", exit_code=0)
    return shown, begun


def gang(operator: Tfdeploy, deaths: int) -> list[float]:
    """Kill worker:1 `deaths` times. Return, for each kill, the seconds until all tasks have started
    again. The start times come from the hosts' journals."""
    run, host = f"{JOB}-gang", "n3"
    write_job(
        operator, JOB, "any_mode.py", "--steps=1000000000", mode="mirrored", restart={"max": 1000}
    )
    operator.run("launch", "--detach", "--name", run, exit_code=0)
    seconds = []
    for attempt in range(1, deaths + 1):
        _wait_lived(operator, run, attempt, PLACES)
        pid = task_status(operator, run, JOB, host, PLACES[host])["pid"]
        died = time.time()
        kill(operator, host, pid)
        _wait_lived(operator, run, attempt + 1, PLACES, 0.0)
        seconds.append(
            max(_began(operator, run, where, task, attempt + 1) for where, task in PLACES.items())
            - died
        )
    operator.run("stop", run, "--now", exit_code=0)
    return seconds


def _wait_lived(
    operator: Tfdeploy, run: str, attempt: int, places: dict[str, str], lived_s: float = LIVED_S
) -> None:
    def lived() -> bool:
        try:
            messages = [
                task_status(operator, run, JOB, host, task) for host, task in places.items()
            ]
        except AssertionError:  # the status file does not exist yet
            return False
        return all(
            one["attempt"] == attempt
            and one["state"] == "running"
            and time.time() - one["started"] > lived_s
            for one in messages
        )

    wait_for(lived, SEEN_S, f"attempt {attempt} has lived for {lived_s} s")


def _wait_event(events: Events, task: str, states: tuple[str, ...], attempt: int) -> None:
    def come() -> bool:
        said = (
            event["data"]
            for event in events.fresh()
            if event["kind"] == "task" and event["task"] == task
        )
        return any(one["state"] in states and one["attempt"] == attempt for one in said)

    wait_for(come, SEEN_S, f"{task} is {states[0]}, attempt {attempt}")


def _began(operator: Tfdeploy, run: str, host: str, task: str, attempt: int) -> float:
    journal = on_host(operator.lab, host, f"cat {task_folder(run, JOB, host, task)}/journal")
    return next(
        float(row["time"])
        for row in map(json.loads, journal.splitlines())
        if row["what"] == "started" and row["attempt"] == attempt
    )


if __name__ == "__main__":
    sys.exit(main())
