"""Launch a run, kill some of its processes, stop the run, and search for what is left of it.

One of the programs forks and ignores signals.

    python benchmarks/faults/stops.py --cycles 1000

Each cycle kills up to two processes of the run at random moments: a task, a supervisor (the parent
process of a task) or a minder (the process that looks after the run on a host). Then the cycle
stops the run, sometimes with two stops at the same time.
"""

from __future__ import annotations

import random
import sys
import time

from misfortune import Tfdeploy, figure, operators, options, spread

from support.waiting import wait_for  # isort: skip
from support.lab.jobs import write_job  # isort: skip
from support.lab.remains import find_remains  # isort: skip
from support.lab.run_files import host_state, kill, task_status  # isort: skip

JOBS = {
    "stops-plain": ("quick.py", "--steps=1000000000", "--pause=1"),
    "stops-stubborn": ("stubborn.py", "--environ"),
}
PLACES = {"n1": "ps:0", "n2": "worker:0", "n3": "worker:1"}
LEFT_S = 10.0


def main() -> int:
    args = options(__doc__, cycles=1000)
    chance = random.Random(args.seed)
    orphans, killed, seconds = 0, 0, []
    with operators(3) as (operator,):
        for number in range(1, args.cycles + 1):
            job = chance.choice(tuple(JOBS))
            write_job(
                operator,
                job,
                *JOBS[job],
                restart={"max": 20, "backoff": ["100ms", "1s"]},
                stop={"grace": "1s"},
            )
            run = f"{job}-{number}"
            operator.run("launch", "--detach", "--name", run, exit_code=0)
            for _ in range(chance.randrange(3)):
                killed += strike(operator, run, job, chance)
                time.sleep(chance.uniform(0, 0.5))
            began = time.monotonic()
            command = ("stop", run, *chance.choice(((), ("--now",))))
            also = operator.start(*command) if chance.random() < 0.2 else None
            operator.run(*command, exit_code=0)
            seconds.append(time.monotonic() - began)
            if also is not None:
                also.communicate(timeout=60)
            orphans += left_of(operator, run, job)
            print(
                f"cycle {number}: {killed} killed, {orphans} with something left",
                file=sys.stderr,
                flush=True,
            )
    figure("cycles of launch, kill, stop", args.cycles)
    figure("tasks, supervisors and minders that were killed", killed)
    figure("cycles after which a process, port, lock or file was left", orphans)
    figure("a stop", spread(seconds))
    return int(bool(orphans))


def strike(operator: Tfdeploy, run: str, job: str, chance: random.Random) -> bool:
    """Kill one process of the run. Return False if the process had ended already."""
    host = chance.choice(tuple(PLACES))
    status = task_status(operator, run, job, host, PLACES[host])
    pid = chance.choice(
        (
            status["pid"],
            status["supervisor_pid"],
            host_state(operator, run, job, host)["minder_pid"],
        )
    )
    try:
        kill(operator, host, pid)
    except AssertionError:
        return False
    return True


def left_of(operator: Tfdeploy, run: str, job: str) -> bool:
    """Wait until nothing of the stopped run is left, but at most LEFT_S seconds. Return True if
    something is left even then.
    """
    try:
        return not wait_for(lambda: not find_remains(operator, run, job), LEFT_S, "nothing is left")
    except AssertionError:
        print(f"left of {run}: {find_remains(operator, run, job)}", file=sys.stderr)
        return True


if __name__ == "__main__":
    sys.exit(main())
