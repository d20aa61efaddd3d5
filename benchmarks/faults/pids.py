"""Count how many unrelated processes receive a signal when a run is stopped.

    python benchmarks/faults/pids.py --reuses 200

The tasks of a run, their supervisors (parent processes) and the minders (the processes that look
after the run, one on each host) are killed. Unrelated processes get the pids of the killed ones.
Then the run is stopped.
"""

from __future__ import annotations

import random
import sys
from contextlib import ExitStack

from misfortune import figure, operators, options

from support.waiting import wait_for  # isort: skip
from support.lab.jobs import write_job  # isort: skip
from support.lab.remains import find_remains  # isort: skip
from support.lab.run_files import list_alive, host_state, kill, task_status  # isort: skip
from support.faults.strangers import strangers  # isort: skip

JOB = "pids"
PLACES = {"n1": "ps:0", "n2": "worker:0", "n3": "worker:1"}


def main() -> int:
    args = options(__doc__, reuses=200)
    chance = random.Random(args.seed)
    reuses = wrong = number = 0
    with operators(3) as (operator,):
        write_job(operator, JOB, "quick.py", "--steps=1000000000", "--pause=1", restart={"max": 0})
        while reuses < args.reuses:
            number += 1
            run = f"{JOB}-{number}"
            operator.run("launch", "--detach", "--name", run, exit_code=0)
            pids = {}
            for host, task in PLACES.items():
                status = task_status(operator, run, JOB, host, task)
                pids[host] = [
                    status["pid"],
                    status["supervisor_pid"],
                    host_state(operator, run, JOB, host)["minder_pid"],
                ]
            for host, theirs in pids.items():
                kill(operator, host, *theirs, check=False)
            for host, theirs in pids.items():
                wait_for(
                    lambda host=host, theirs=theirs: not list_alive(operator, host, *theirs),
                    20,
                    "all of it is dead",
                )
            with ExitStack() as stack:
                there = [
                    stack.enter_context(strangers(operator.lab, host, theirs))
                    for host, theirs in pids.items()
                ]
                for words in chance.sample(
                    (("status", run), ("logs", run), ("stop", run, "--now")), 3
                ):
                    operator.run(*words, exit_code=0)
                wait_for(
                    lambda run=run: not find_remains(operator, run, JOB), 30, "nothing is left"
                )
                wrong += sum(not each.untouched() for each in there)
            reuses += sum(map(len, pids.values()))
            print(f"{reuses} pids used again, {wrong} wrong kills", file=sys.stderr, flush=True)
    figure("pids that a stranger got", reuses)
    figure("strangers that were signalled", wrong)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
