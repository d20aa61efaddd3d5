"""Count double starts: launches that have started more than one set of processes.

    python benchmarks/faults/starts.py --launches 500

Three cases take turns. In the first, the same launch runs twice. In the second, two operators start
five launches at the same time. In the third, the agent on one host dies during a launch, after it
has executed a request (chosen at random) and before it answers. So the answer is lost.
"""

from __future__ import annotations

import random
import sys

from misfortune import Tfdeploy, figure, operators, options

from support.waiting import wait_for  # isort: skip
from support.lab.jobs import write_job  # isort: skip
from support.lab.remains import find_remains  # isort: skip
from support.faults.lost_answers import agent_that_dies_after  # isort: skip

JOB = "starts"
AT_ONCE = 5
VERBS = ("lock", "release.begin", "run.prepare", "run.start", "run.commit")


def main() -> int:
    args = options(__doc__, launches=500)
    chance = random.Random(args.seed)
    with operators(3, 2) as both:
        for each in both:
            write_job(each, JOB, "quick.py", "--steps=1000000000", "--pause=1")
        tally = Tally(both)
        while tally.launches < args.launches:
            tally.twice(chance)
            tally.at_once(chance)
            tally.unheard(chance)
            print(
                f"{tally.launches} launches, {tally.doubles} double starts",
                file=sys.stderr,
                flush=True,
            )
    figure("launches: duplicate, concurrent, with a lost reply", tally.launches)
    figure("of them came up", tally.came_up)
    figure("double starts", tally.doubles)
    figure("runs of which something was left after their stop", tally.left)
    return int(bool(tally.doubles or tally.left))


class Tally:
    def __init__(self, both: list[Tfdeploy]) -> None:
        self.both, self.lab = both, both[0].lab
        self.launches = self.came_up = self.doubles = self.left = self._number = 0

    def twice(self, chance: random.Random) -> None:
        name = self._name()
        one = chance.choice(self.both)
        first = one.start("launch", "--detach", "--name", name)
        second = chance.choice(self.both).start("launch", "--detach", "--name", name)
        self._settle([name], [first.wait(120), second.wait(120)])

    def at_once(self, chance: random.Random) -> None:
        names = [self._name() for _ in range(AT_ONCE)]
        started = [
            chance.choice(self.both).start("launch", "--detach", "--name", name) for name in names
        ]
        self._settle(names, [process.wait(180) for process in started])

    def unheard(self, chance: random.Random) -> None:
        name, host = self._name(), chance.choice(self.lab.hosts)
        (self.both[0].cwd / "new").write_text(name)
        with agent_that_dies_after(self.both[0], host, chance.choice(VERBS)):
            done = self.both[0].run("launch", "--detach", "--name", name)
        self._settle([name], [done.returncode])

    def _name(self) -> str:
        self._number += 1
        return f"{JOB}-{self._number}"

    def _settle(self, names: list[str], codes: list[int]) -> None:
        """Count the launches, the runs that came up, and the launches that started more than one
        set of processes. Then stop the runs.
        """
        self.launches += len(codes)
        self.came_up += codes.count(0)
        there = {
            name: [len(self.both[0].marked(host, name)) for host in self.lab.hosts]
            for name in names
        }
        running = [name for name, counts in there.items() if any(counts)]
        self.doubles += len(running) > 1 or any(
            count > 1 for name in running for count in there[name]
        )
        self.doubles += codes.count(0) > 1 or (
            codes.count(0) == 1 and there[running[0]] != [1] * len(self.lab.hosts)
        )
        for name in running:
            self.both[1].run("stop", name, "--now", exit_code=0)
        if not running:
            for each in self.both:
                # A launch may have been interrupted while it sent files. This sync sends the rest,
                # so that no partial copy remains.
                each.run("sync", exit_code=0)
        self.left += sum(1 for name in names if self._remains(name))
        for each in self.both:
            each.end_all()
            each.running.clear()

    def _remains(self, name: str) -> bool:
        try:
            return not wait_for(
                lambda: not find_remains(self.both[0], name, JOB), 75, "nothing is left"
            )
        except AssertionError:
            print(f"left of {name}: {find_remains(self.both[0], name, JOB)}", file=sys.stderr)
            return True


if __name__ == "__main__":
    sys.exit(main())
