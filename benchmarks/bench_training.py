"""Measure steps per second of the digits example with one parameter server and one worker on two
hosts.

It compares a run under tfdeploy with tasks that are started by hand. The rate is computed from the
lines that the program prints at step 100 and at the last step, so the start does not count. The
program writes no checkpoints, because without tfdeploy they fail on two hosts that share no disk.
"""

from __future__ import annotations

import datetime
import json
import re
import shutil
import statistics
import subprocess
import sys
import time

from figures import Figures, options
from place import REPOSITORY, BenchLab, open_bench_lab

from support.lab.host_commands import host_command  # isort: skip

EXAMPLE = REPOSITORY / "examples/digits"
JOB = """name: bench
mode: async
data: {{digits: ./data/digits}}
command: [python, train.py, "--data={{data.digits}}", "--steps={steps}", "--checkpoints="]
env: {{TF_CPP_MIN_LOG_LEVEL: "2"}}
"""
STEP = re.compile(r"step (\d+) loss")
PS, WORKER = "n1", "n2"


def main() -> None:
    args = options(__doc__, rounds=3, steps=6000)
    with open_bench_lab(2) as bench:
        measure(bench, args.steps, args.rounds, Figures("training", args.json))


def measure(bench: BenchLab, steps: int, rounds: int, figures: Figures) -> None:
    subprocess.run([sys.executable, EXAMPLE / "make_shards.py"], check=True, stdout=sys.stderr)
    shutil.copy(EXAMPLE / "train.py", bench.work)
    shutil.copytree(EXAMPLE / "data", bench.work / "data")
    (bench.work / "tfdeploy.yaml").write_text(JOB.format(steps=steps))
    release = json.loads(bench.tfdeploy("sync", "--json").output)["hosts"][0]["release"]
    ours, theirs = [], []
    for number in range(rounds):
        ours.append(by_tfdeploy(bench, f"bench-{number}"))
        theirs.append(by_hand(bench, f"tfdeploy/bench/releases/{release}", steps))
    figures.add("by hand", statistics.median(theirs), "steps/s")
    ratio = statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
    figures.add(
        "under tfdeploy",
        statistics.median(ours),
        "steps/s",
        ratio=ratio,
        against="by hand",
        goal=0.98,
        at_least=True,
    )


def by_tfdeploy(bench: BenchLab, run: str) -> float:
    bench.tfdeploy("launch", "--name", run, "--wait", "--quiet")
    told = bench.tfdeploy("logs", run, "--task", "worker:0", "--json").output.splitlines()
    return rate([(stamp(line["time"]), line["line"]) for line in map(json.loads, told)])


def by_hand(bench: BenchLab, release: str, steps: int) -> float:
    """Run the commands that a user would type into two terminals, and then stop the parameter
    server. Return steps per second."""
    ps, worker = bench.addresses
    command = [
        f"--ps_hosts={ps}:3330",
        f"--worker_hosts={worker}:3331",
        f"--steps={steps}",
        "--task_index=0",
    ]
    command += ["--data=../../data/digits", "--checkpoints="]

    def start(host: str, role: str) -> subprocess.Popen[str]:
        script = (
            f"cd {release} && echo $$ > /tmp/{role}.pid && TF_CPP_MIN_LOG_LEVEL=2 "
            "CUDA_VISIBLE_DEVICES= exec "
        )
        script += f"{sys.executable} -u train.py --job_name={role} {' '.join(command)}"
        argv = host_command(bench.lab, host, ["sh", "-c", script])
        return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    server, client = start(PS, "ps"), start(WORKER, "worker")
    try:
        assert client.stdout is not None
        steps_per_s = rate([(time.time(), line) for line in client.stdout])
        client.wait()
    finally:
        for host, role in ((PS, "ps"), (WORKER, "worker")):
            subprocess.run(
                host_command(bench.lab, host, ["sh", "-c", f"kill $(cat /tmp/{role}.pid)"]),
                check=False,
                stderr=subprocess.DEVNULL,
            )
        for process in (client, server):
            process.kill()
            process.wait()
    return steps_per_s


def stamp(text: str) -> float:
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def rate(lines: list[tuple[float, str]]) -> float:
    seen = [(when, int(match[1])) for when, line in lines if (match := STEP.match(line))]
    if len(seen) < 2:
        raise SystemExit(f"the training said too little: {lines[-5:]}")
    (began, first), (ended, last) = seen[0], seen[-1]
    return (last - first) / (ended - began)


if __name__ == "__main__":
    main()
