"""Measure what the agent costs on a host.

It measures the memory and CPU of an idle supervisor (the parent process of a task) and of an idle
minder (the process that looks after a run on a host). It also measures the CPU of the sampler while
a program prints metrics, and the rate at which a program's output is written to the log. For
comparison, `cat >file` reads the same output from a pipe in the same rounds. Memory is PSS: the
size of a page that several processes share is divided among them.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from pathlib import Path

from figures import Figures, options
from place import BenchLab, open_bench_lab

from support.lab.host_commands import host_command  # isort: skip

JOB = """name: bench
mode: local
command: [python, program.py, "{megabytes}"]
logs: {{max: 8GiB}}
ready: {{after: 200ms}}
"""
IDLE = "import signal; signal.pause()\n"
TALK = """import time
for step in range(1 << 30):
    print("step %d loss %.4f" % (step, 1 / (step + 1)), flush=True)
    time.sleep(0.05)
"""
FLOOD = """import os, sys, time
block = (b"x" * 99 + b"\\n") * 10486
time.sleep(1)
begun = time.monotonic()
for _ in range(int(sys.argv[1])):
    left = memoryview(block)
    while left:
        left = left[os.write(1, left):]
sys.stderr.write("seconds %.4f\\n" % (time.monotonic() - begun))
"""
TICKS = os.sysconf("SC_CLK_TCK")


def main() -> None:
    args = options(__doc__, rounds=3, megabytes=1000, idle=20, sampled=60)
    figures = Figures("agent", args.json)
    with open_bench_lab(2) as bench:
        (bench.work / "tfdeploy.yaml").write_text(JOB.format(megabytes=args.megabytes))
        idle(bench, args.idle, figures)
        sampling(bench, args.sampled, figures)
        drain(bench, args.megabytes, args.rounds, figures)


def idle(bench: BenchLab, seconds: int, figures: Figures) -> None:
    (bench.work / "program.py").write_text(IDLE)
    bench.tfdeploy("launch", "--name", "idle", "--detach", "--quiet")
    keepers = {"supervisor": _pids("supervise", "idle"), "minder": _pids("minder", "idle")}
    before = {name: sum(map(_ticks, pids)) for name, pids in keepers.items()}
    time.sleep(seconds)
    for name, pids in keepers.items():
        figures.add(f"{name}, idle, memory", max(map(_pss_mb, pids)), "MB", goal=20)
        spent = (sum(map(_ticks, pids)) - before[name]) / TICKS / len(pids)
        figures.add(f"{name}, idle", 100 * spent / seconds, "% core", goal=1)
    bench.tfdeploy("stop", "idle", "--now", "--quiet")


def sampling(bench: BenchLab, seconds: int, figures: Figures) -> None:
    (bench.work / "program.py").write_text(TALK)
    bench.tfdeploy("launch", "--name", "talk", "--detach", "--quiet")
    samplers = _pids("sample", "talk")
    before = sum(map(_cpu_ns, samplers))
    time.sleep(seconds)
    spent = (sum(map(_cpu_ns, samplers)) - before) / 1e9 / len(samplers)
    figures.add("sampler, 20 lines a second", 100 * spent / seconds, "% core", goal=0.3)
    bench.tfdeploy("stop", "talk", "--now", "--quiet")


def drain(bench: BenchLab, megabytes: int, rounds: int, figures: Figures) -> None:
    (bench.work / "program.py").write_text(FLOOD)
    ours, theirs = [], []
    for number in range(rounds):
        bench.tfdeploy("launch", "--name", f"flood-{number}", "--wait", "--quiet")
        ours.append(
            megabytes
            / _printed_seconds(
                bench.tfdeploy("logs", f"flood-{number}", "-n", "1", "--output", "raw").output
            )
        )
        theirs.append(megabytes / _by_cat(bench, megabytes))
    rate = statistics.median(ours)
    ratio = statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
    figures.add("drained into the log", rate, "MB/s", goal=200, at_least=True)
    figures.add("the same into `cat >file`", statistics.median(theirs), f"MB/s, {ratio:.2f} x")


def _by_cat(bench: BenchLab, megabytes: int) -> float:
    script = (
        'python3 -c "$0" "$1" 2>/tmp/said | cat >~/flood; tail -1 /tmp/said; rm ~/flood /tmp/said'
    )
    argv = host_command(bench.lab, "n2", ["sh", "-c", script, FLOOD, str(megabytes)])
    return _printed_seconds(subprocess.run(argv, capture_output=True, check=True).stdout)


def _printed_seconds(output: bytes) -> float:
    return float(output.decode().split("seconds ")[-1].split()[0])


def _pids(verb: str, run: str) -> list[int]:
    results = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "cmdline").read_bytes().decode().split("\0")
        except OSError:
            continue
        if verb in fields and any(f"/runs/{run}/" in word for word in fields):
            results.append(int(folder.name))
    return results


def _ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def _cpu_ns(pid: int) -> int:
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])


def _pss_mb(pid: int) -> float:
    rows = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(row.split()[1]) for row in rows if row.startswith("Pss:")) / 1024


if __name__ == "__main__":
    main()
