"""Compare the steps per second of runs with `protect: peers` and with `protect: none`.

    python benchmarks/protect_steps.py --swaps 10 --seconds 20
    python benchmarks/protect_steps.py --protect none       both runs are unprotected, which shows
                                                            the error of the measurement

A protected and an unprotected run train at the same time on the same two hosts. Each has a ps and a
worker of real TensorFlow, with a model so small that a step is little more than an exchange between
them. All four processes share one core: if a step of one run costs more, the other run gains that
time, and other load slows both alike. For each measurement (a swap) both runs are started again.
The swaps vary which run is protected, which run starts first and which host has the ps. The ratio
of a swap is the geometric mean of the ratios in several windows of time. The printed interval is
Student's t interval over the ratios of the swaps. The exit code is 1 if the goal is missed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import re
import shlex
import shutil
import statistics
import sys
import time
from bisect import bisect_left
from datetime import datetime
from pathlib import Path

from figures import say
from misfortune import Tfdeploy, figure, operators
from scipy.stats import t as student

from support.lab.commandline import wait_for_end  # isort: skip
from support.lab.hosts import on_host, set_inventory  # isort: skip
from support.waiting import wait_for  # isort: skip

PROGRAM = Path(__file__).resolve().parents[1] / "tests/lab/programs/monitored_async.py"
JOB = """name: {name}
mode: async
code: code
protect: {protect}
command: [python, {program}, "--steps=1000000000", "--checkpoints="]
env: {{TF_CPP_MIN_LOG_LEVEL: "2"}}
"""
MAY_USE_NFT = "setcap cap_net_admin+ep $(readlink -f /usr/sbin/nft)"
STEP = re.compile(r"step (\d+) loss")
PORTS = ("2222-2249", "2250-2279")
CORE = 1
PIN = """
import os, sys
for _ in range(2):  # threads that began meanwhile too
    for thread in os.listdir("/proc/" + sys.argv[1] + "/task"):
        try:
            os.sched_setaffinity(int(thread), {int(sys.argv[2])})
        except ProcessLookupError:
            pass
"""
LOWEST = 0.97
WITHIN_S = 120.0
Progress = list[tuple[float, int]]  # (UTC seconds, step) of each line of progress


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--swaps", type=int, default=10, help="default 10")
    parser.add_argument(
        "--seconds", type=float, default=20.0, help="measured in each swap, default 20"
    )
    parser.add_argument("--window", type=float, default=2.0, help="seconds, default 2")
    parser.add_argument(
        "--warm", type=float, default=5.0, help="seconds that both train before that, default 5"
    )
    parser.add_argument("--protect", choices=("peers", "firewall", "none"), default="peers")
    parser.add_argument(
        "--apart",
        action="store_true",
        help="on all cores, where which core a run gets is most of the noise",
    )
    args = parser.parse_args()
    with operators(2, count=2) as sides:
        for host in sides[0].lab.hosts:
            on_host(sides[0].lab, host, MAY_USE_NFT, root=True)
        for side in sides:
            (side.cwd / "code").mkdir()
            shutil.copy(PROGRAM, side.cwd / "code")
        collected = [swap(sides, number, args) for number in range(args.swaps)]
    return judge(collected, args.protect)


def swap(sides: list[Tfdeploy], number: int, args: argparse.Namespace) -> float:
    """Return the steps per second of the protected run, divided by those of the unprotected run.

    A swap is one measurement of both runs. Eight swaps in a row cover all combinations of three
    choices: which run starts first, which operator's run is protected, and which host has the ps.
    """
    protected, plain = sides[::-1] if number // 2 % 2 else sides
    run, ways = f"run-{number}", {protected: args.protect, plain: "none"}
    for place, side in enumerate(sides):
        write(side, place, ways[side], bool(number // 4 % 2))
    launch(sides[::-1] if number % 2 else sides, run, ways)
    if not args.apart:
        share_one_core(sides, run)
    time.sleep(args.warm)
    spans = windows(args)
    ratio = compare(progress(protected, run), progress(plain, run), spans)
    for side in sides:
        side.run("stop", run, "--now", exit_code=0)
    return ratio


def write(side: Tfdeploy, place: int, protect: str, turned: bool) -> None:
    """Write the job and the inventory of one of the two runs that are compared. Both runs are
    active at the same time, so they have different ports."""
    ps, worker = side.lab.hosts[:: -1 if turned else 1]
    set_inventory(side, defaults={"ports": PORTS[place]}, roles={"ps": [ps], "worker": [worker]})
    (side.cwd / "tfdeploy.yaml").write_text(
        JOB.format(name=f"steps-{place}", protect=protect, program=PROGRAM.name)
    )


def launch(sides: list[Tfdeploy], run: str, ways: dict[Tfdeploy, str]) -> None:
    """Launch the two runs in the order of `sides`. Return when the training of both has begun."""
    for process in [side.start("launch", "--detach", "--name", run) for side in sides]:
        code, output = wait_for_end(process, WITHIN_S)
        assert code == 0, output
    for side in sides:
        used = side.json("status", run)["protect"]["used"]
        assert used == ways[side], f"the run is protected by {used}"
        wait_for(lambda side=side: len(progress(side, run)) > 1, WITHIN_S, "both train", poll_s=1.0)


def share_one_core(sides: list[Tfdeploy], run: str) -> None:
    """Bind all processes of both runs to one core."""
    for side in sides:
        for row in side.json("status", run)["tasks"]:
            on_host(
                side.lab,
                row["host"],
                shlex.join(["python3", "-c", PIN, str(row["pid"]), str(CORE)]),
                root=True,
            )


def windows(args: argparse.Namespace) -> list[tuple[float, float]]:
    """Wait while the runs are measured. Return the beginning and the end of each window of time, in
    UTC seconds."""
    cuts = [time.time()]
    for _ in range(round(args.seconds / args.window)):
        time.sleep(args.window)
        cuts.append(time.time())
    return list(itertools.pairwise(cuts))


def progress(side: Tfdeploy, run: str) -> Progress:
    stdout = side.run("logs", run, "--task", "worker:0", "--output", "json", exit_code=0).stdout
    rows = [json.loads(line) for line in stdout.splitlines()]
    return [
        (_seconds(row["time"]), int(match[1])) for row in rows if (match := STEP.match(row["line"]))
    ]


def compare(protected: Progress, plain: Progress, spans: list[tuple[float, float]]) -> float:
    rates = [statistics.fmean(rate(each, span) for span in spans) for each in (protected, plain)]
    ratios = [math.log(rate(protected, span) / rate(plain, span)) for span in spans]
    mean = math.exp(statistics.fmean(ratios))
    spread = f"{math.exp(min(ratios)):.3f} to {math.exp(max(ratios)):.3f}"
    say(f"{rates[0]:.1f} and {rates[1]:.1f} steps/s: {mean:.4f} ({len(ratios)} windows: {spread})")
    return mean


def rate(progress: Progress, span: tuple[float, float]) -> float:
    """Return the steps per second within the span.

    If the last line of the log is slightly older than the span's end, the progress is extrapolated.
    """
    return (_step_at(progress, span[1]) - _step_at(progress, span[0])) / (span[1] - span[0])


def _step_at(progress: Progress, when: float) -> float:
    """Return the step at the time `when`, interpolated between two lines of the log. Before the
    first or after the last line, it is extrapolated from the nearest two lines.
    """
    after = min(max(1, bisect_left(progress, (when, 0))), len(progress) - 1)
    (earlier, low), (later, high) = progress[after - 1 : after + 1]
    return low + (high - low) * (when - earlier) / (later - earlier)


def judge(ratios: list[float], protect: str) -> int:
    logs = [math.log(ratio) for ratio in ratios]
    mean, error = statistics.fmean(logs), statistics.stdev(logs) / math.sqrt(len(logs))
    beyond = float(student.ppf(0.975, len(logs) - 1)) * error
    low, high = math.exp(mean - beyond), math.exp(mean + beyond)
    met = low >= LOWEST and low <= 1.0 <= high
    said = f"{math.exp(mean):.4f} x, 95 % {low:.4f} to {high:.4f}, {len(ratios)} swaps"
    figure(
        f"steps/s under {protect}, against none at the same time",
        f"{said}; goal 1.0 within, from {LOWEST}: {'met' if met else 'MISSED'}",
    )
    return int(not met)


def _seconds(iso: str) -> float:
    return datetime.fromisoformat(re.sub(r"Z$", "+00:00", iso)).timestamp()


if __name__ == "__main__":
    sys.exit(main())
