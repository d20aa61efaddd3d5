"""Kill a task repeatedly, for each mode and role, with real TensorFlow.

    python benchmarks/faults/deaths.py --deaths 10            all cases, one after the other
    python benchmarks/faults/deaths.py --deaths 2 --only mirrored

Each time, training must continue from its checkpoint. The run uses four isolated hosts, and no
client is connected while a task dies. The steps are read from the log of one task, which may be
another task than the killed one. The table has a column "went on": the deaths after which training
continued. Training has continued if two conditions hold. First, the steps in this log go beyond the
last step before the death. Second, training falls back by at most two checkpoints, which shows that
it has not started from zero.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from place import REPOSITORY, BenchLab, open_bench_lab

from support.lab.host_commands import host_command  # isort: skip

EXAMPLES = REPOSITORY / "examples"
WITHIN_S = 180.0
LOOK_S = 0.5


class Case(NamedTuple):
    """One mode and the task to kill in it. `shown`: the task from whose log the steps are read.

    `saved_every`: the number of steps between two checkpoints. `words`: the arguments of `launch`.
    """

    example: str
    mode: str
    victim: str
    shown: str
    saved_every: int
    words: tuple[str, ...]
    step: str = r"^step (\d+) loss"


_DIGITS = (
    "--mode",
    "{mode}",
    "--",
    "python",
    "train.py",
    "--data={data.digits}",
    "--steps=1000000",
)
_KERAS = ("--", "python", "train.py", "--epochs=100000")
_CHIEF = ("--", "python", "train.py", "--steps=1000000")
_TOWERS = ("--", "python", "towers.py", "--steps=1000000")
_IN_GRAPH = ("--", "python", "train.py", "--worker_hosts={worker_hosts}", "--steps=1000000")
CASES = (
    *(
        Case(
            example="digits",
            mode="async",
            victim=victim,
            shown="worker:0",
            saved_every=500,
            words=_DIGITS,
        )
        for victim in ("worker:1", "ps:0", "worker:0")
    ),
    *(
        Case(
            example="digits",
            mode="sync",
            victim=victim,
            shown="worker:0",
            saved_every=500,
            words=_DIGITS,
        )
        for victim in ("worker:1", "ps:0", "worker:0")
    ),
    *(
        Case(
            example="mirrored_keras",
            mode="mirrored",
            victim=victim,
            shown="worker:0",
            saved_every=1,
            words=_KERAS,
            step=r"^Epoch (\d+)/",
        )
        for victim in ("worker:1", "worker:0")
    ),
    *(
        Case(
            example="coordinator",
            mode="coordinator",
            victim=victim,
            shown="chief:0",
            saved_every=1,
            words=_CHIEF,
        )
        for victim in ("worker:1", "ps:0", "chief:0")
    ),
    *(
        Case(
            example="ingraph",
            mode="ingraph",
            victim=victim,
            shown="chief:0",
            saved_every=100,
            words=_IN_GRAPH,
        )
        for victim in ("worker:1", "worker:0", "chief:0")
    ),
    Case(
        example="towers",
        mode="local",
        victim="worker:0",
        shown="worker:0",
        saved_every=100,
        words=_TOWERS,
    ),
)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--deaths", type=int, default=10)
    parser.add_argument("--only", default="", help="cases whose mode or victim contains this")
    args = parser.parse_args()
    rows = []
    with open_bench_lab(4) as bench:
        subprocess.run(
            [sys.executable, EXAMPLES / "digits" / "make_shards.py"], check=True, stdout=sys.stderr
        )
        for case in CASES:
            if args.only in f"{case.mode} {case.victim}":
                rows.append(measure(bench, case, args.deaths))
                print(rows[-1], flush=True)
    print(
        "\nmode         killed    went on   again after (median, worst)   past the old step "
        "after (median, worst)"
    )
    print("\n".join(rows))
    return 0


def measure(bench: BenchLab, case: Case, deaths: int) -> str:
    work = bench.work / f"{case.mode}-{case.victim.replace(':', '-')}"
    shutil.copytree(EXAMPLES / case.example, work)
    job = work / "tfdeploy.yaml"
    job.write_text(
        re.sub(r"^name: .*", f"name: {work.name}", job.read_text(), flags=re.MULTILINE)
        + "restart: {max: 1000}\n"
    )
    watch = Watch(bench, work, case)
    run = watch.tfdeploy(
        "launch",
        "--detach",
        *(word.format(mode=case.mode) if "{mode}" in word else word for word in case.words),
    )
    watch.run = run.strip()
    again, passed, good = [], [], 0
    try:
        watch.wait(lambda: watch.steps()[-1:] > [2 * case.saved_every], "the first checkpoints")
        for _ in range(deaths):
            before = watch.steps()
            died = time.monotonic()
            watch.kill()
            watch.wait(watch.is_back, "the task runs again")
            again.append(time.monotonic() - died)
            watch.wait(
                lambda before=before: watch.steps()[-1:] > before[-1:],
                "training passes where it was",
            )
            passed.append(time.monotonic() - died)
            since = watch.steps()[len(before) :]
            good += min(since) >= before[-1] - 2 * case.saved_every
    except TimeoutError as error:
        print(error, file=sys.stderr)
        print(watch.tfdeploy("status", watch.run), file=sys.stderr)
    finally:
        watch.tfdeploy("stop", watch.run, "--now")
    return (
        f"{case.mode:12} {case.victim:9} {good:2} of {deaths:2}  {_both(again)}   {_both(passed)}"
    )


def _both(seconds: list[float]) -> str:
    return (
        f"{statistics.median(seconds):6.1f} s {max(seconds):6.1f} s"
        if seconds
        else "       -        -"
    )


class Watch:
    """Observes one run. Every observation is a command that ends at once, because no client may
    stay connected.
    """

    def __init__(self, bench: BenchLab, work: Path, case: Case) -> None:
        self.place, self.work, self.case = bench, work, case
        self.run = ""
        self.attempt = 1

    def tfdeploy(self, *args: str) -> str:
        argv = self.place.lab.operator_command(
            [str(Path(sys.executable).parent / "tfdeploy"), *args]
        )
        done = subprocess.run(
            argv, env=self.place.env, cwd=self.work, capture_output=True, text=True, check=False
        )
        if done.returncode and args[0] != "stop":
            raise SystemExit(f"tfdeploy {' '.join(args)}: {done.stderr}")
        return done.stdout

    def steps(self) -> list[int]:
        said = self.tfdeploy("logs", self.run, "--task", self.case.shown, "--output", "raw")
        return [int(step) for step in re.findall(self.case.step, said, re.MULTILINE)]

    def tasks(self) -> list[dict[str, Any]]:
        tasks: list[dict[str, Any]] = json.loads(self.tfdeploy("status", self.run, "--json"))[
            "tasks"
        ]
        return tasks

    def victim(self) -> dict[str, Any]:
        return next(task for task in self.tasks() if task["task"] == self.case.victim)

    def kill(self) -> None:
        self.wait(lambda: self.victim()["state"] == "running", "the task runs before it is killed")
        victim = self.victim()
        self.attempt = victim["attempt"]
        subprocess.run(
            host_command(self.place.lab, victim["host"], ["kill", "-KILL", str(victim["pid"])]),
            check=True,
        )

    def is_back(self) -> bool:
        """Return True if the killed task runs again. In mode mirrored, all tasks must run again."""
        back = self.tasks() if self.case.mode == "mirrored" else [self.victim()]
        return all(task["attempt"] > self.attempt and task["state"] == "running" for task in back)

    def wait(self, reached: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + WITHIN_S
        while not reached():
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"{self.case.mode}, {self.case.victim} killed: not within {WITHIN_S:g} s: "
                    f"{what}"
                )
            time.sleep(LOOK_S)


if __name__ == "__main__":
    sys.exit(main())
