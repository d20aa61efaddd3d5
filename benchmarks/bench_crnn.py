"""Compare the steps per second of the crnn example under tfdeploy and started by hand over ssh.

The two kinds of run take turns. Each has one ps and one or two workers that train asynchronously.
Only steps made while all workers train are counted: the time begins when the last worker prints its
first line of progress, and ends when the first worker prints its last one. The start and the end of
a run do not count in the steps per second, but they count in the CPU time of the hosts. All hosts
and the client share this machine's cores.

On a machine whose speed changes from minute to minute, a difference of one percent is lost in
noise. So one run of each kind also trains at the same time on the same hosts, with one worker each.
This shows whether a step costs the same under tfdeploy and by hand. It does not show the cost of
tfdeploy's own processes, because they slow down both runs alike. Only the runs in turns show that.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime

import rivals
from figures import Figures, options, say
from place import REPOSITORY, USER, BenchLab, open_bench_lab

PORT = 3330  # outside the range from which tfdeploy takes ports
RUN_S = 300.0
STEP = re.compile(r"step (\d+) loss")
SETTINGS = {"CUDA_VISIBLE_DEVICES": "", "PYTHONUNBUFFERED": "1", "TF_CPP_MIN_LOG_LEVEL": "2"}
# task -> (seconds, global step) of each line of progress
Progress = dict[str, list[tuple[float, int]]]


@dataclass(frozen=True)
class Trained:
    """The result of one run: steps per second, and the CPU seconds of all processes on the hosts
    (training, agent, sshd)."""

    rate: float
    hosts_cpu_s: float


def main() -> None:
    args = options(__doc__, rounds=6, steps=3000)
    figures = Figures("crnn", args.json)
    for workers in (1, 2):
        with open_bench_lab(1 + workers) as bench:
            shutil.copytree(REPOSITORY / "examples/crnn", bench.work, dirs_exist_ok=True)
            steps = args.steps * workers
            command = json.dumps(["python", "train.py", f"--steps={steps}"])
            (bench.work / "tfdeploy.yaml").write_text(
                f"name: bench\nmode: async\nenv: {{TF_CPP_MIN_LOG_LEVEL: '2'}}\ncommand: "
                f"{command}\n"
            )
            measure(bench, steps, args.rounds, figures)
            if workers == 1:
                measure_at_once(bench, steps, args.rounds, figures)


def measure(bench: BenchLab, steps: int, rounds: int, figures: Figures) -> None:
    bench.tfdeploy("sync")
    ours: list[Trained] = []
    theirs: list[Trained] = []
    for number in range(rounds):
        turns = [
            lambda: ours.append(trained(bench, lambda: under_tfdeploy(bench))),
            lambda number=number: theirs.append(
                trained(bench, lambda: by_hand(bench, steps, f"by-hand-{number}"))
            ),
        ]
        # The two kinds of run take turns at being first, so that a change of the machine's speed
        # affects both kinds alike.
        for turn in turns if number % 2 else turns[::-1]:
            turn()
        say(f"round {number + 1}: {ours[-1].rate:.1f} and {theirs[-1].rate:.1f} steps/s")
    workers = len(bench.addresses) - 1
    what, rival = f"crnn, 1 ps + {workers} worker{'s' * (workers > 1)}", "by hand over ssh"
    pairs = list(zip(ours, theirs, strict=True))
    ratio = statistics.median(a.rate / b.rate for a, b in pairs)
    figures.add(f"{rival}: {what}", statistics.median(b.rate for b in theirs), "steps/s")
    figures.add(
        what,
        statistics.median(a.rate for a in ours),
        "steps/s",
        ratio=ratio,
        against=rival,
        goal=0.98,
        at_least=True,
    )
    ratio = statistics.median(a.hosts_cpu_s / b.hosts_cpu_s for a, b in pairs)
    figures.add(
        f"{what}: all CPU of the hosts, start to end",
        statistics.median(a.hosts_cpu_s for a in ours),
        "s",
        ratio=ratio,
        against=rival,
    )


def trained(bench: BenchLab, train: Callable[[], Progress]) -> Trained:
    before = bench.served()
    progress = train()
    return Trained(rate(progress, common_span(progress)), bench.served() - before)


def measure_at_once(bench: BenchLab, steps: int, rounds: int, figures: Figures) -> None:
    ratios = []
    for number in range(rounds):
        with ThreadPoolExecutor(2) as pool:
            hand = pool.submit(by_hand, bench, steps, f"at-once-{number}")
            progress, theirs = under_tfdeploy(bench), hand.result()
        both = common_span(progress, theirs)
        ratios.append(rate(progress, both) / rate(theirs, both))
        say(f"round {number + 1}, at once: {ratios[-1]:.3f} for {both[1] - both[0]:.0f} s")
    ratio = statistics.median(ratios)
    figures.add(
        "crnn, 1 ps + 1 worker, both at once",
        ratio,
        "x",
        ratio=ratio,
        against="by hand over ssh",
        goal=0.98,
        at_least=True,
    )


def common_span(*runs: Progress) -> tuple[float, float]:
    """Return (begin, end) in UTC seconds of the time during which all workers of all runs train."""
    lines = [lines for progress in runs for lines in progress.values()]
    return max(each[0][0] for each in lines), min(each[-1][0] for each in lines)


def rate(progress: Progress, span: tuple[float, float]) -> float:
    """Return the global steps per second within the span. Raises SystemExit if the span has fewer
    than two lines."""
    within = [line for line in progress["worker:0"] if span[0] <= line[0] <= span[1]]
    if len(within) < 2:
        raise SystemExit(f"they hardly trained at the same time: {progress}; take more --steps")
    (first, low), (last, high) = within[0], within[-1]
    return (high - low) / (last - first)


def under_tfdeploy(bench: BenchLab) -> Progress:
    run = bench.tfdeploy("launch", "--wait", "--no-sync").output.decode().strip()
    results: Progress = {}
    for text in bench.tfdeploy("logs", run, "--output", "json").output.splitlines():
        row = json.loads(text)
        if step := STEP.match(row["line"]):
            results.setdefault(row["task"], []).append((_seconds(row["time"]), int(step[1])))
    return results


def by_hand(bench: BenchLab, steps: int, folder: str) -> Progress:
    """Train as a user would by hand: copy the code by rsync, then start each task by ssh."""
    addresses = bench.addresses
    bench.run(rivals.rsync(bench, bench.work, folder), stdin="\n".join(addresses).encode())
    flags = [
        f"--ps_hosts={addresses[0]}:{PORT}",
        "--worker_hosts=" + ",".join(f"{each}:{PORT}" for each in addresses[1:]),
    ]
    tasks = [("ps", 0), *(("worker", index) for index in range(len(addresses) - 1))]
    processes = {}
    for address, (role, index) in zip(addresses, tasks, strict=True):
        command = [
            sys.executable,
            "train.py",
            *flags,
            f"--job_name={role}",
            f"--task_index={index}",
            f"--steps={steps}",
        ]
        settings = " ".join(f"{name}={value}" for name, value in SETTINGS.items())
        script = f"cd {folder} && echo $$ > pid && exec env {settings} {shlex.join(command)}"
        processes[f"{role}:{index}"] = _ssh(bench, address, script)
    results: Progress = {}
    readers = [
        threading.Thread(target=_read, args=(each, results.setdefault(task, [])))
        for task, each in processes.items()
    ]
    for reader in readers:
        reader.start()
    try:
        for task in list(processes)[1:]:
            if code := processes[task].wait(RUN_S):
                raise SystemExit(f"by hand, {task} ended with {code}")
    finally:
        for address in addresses:
            _ssh(bench, address, f"kill $(cat {folder}/pid) 2>&1").communicate()
        for reader in readers:
            reader.join()
    return {task: lines for task, lines in results.items() if task != "ps:0"}


def _ssh(bench: BenchLab, address: str, script: str) -> subprocess.Popen[str]:
    words = rivals.ssh(bench, f"{USER}@{address}", script)
    return subprocess.Popen(
        bench.lab.operator_command(words), env=bench.env, cwd=bench.work, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip


def _read(process: subprocess.Popen[str], lines: list[tuple[float, int]]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if step := STEP.match(line):
            lines.append((time.time(), int(step[1])))
    process.wait()


def _seconds(iso: str) -> float:
    return datetime.fromisoformat(re.sub(r"Z$", "+00:00", iso)).timestamp()


if __name__ == "__main__":
    main()
