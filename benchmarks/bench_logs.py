"""Measure how fast `tfdeploy logs` writes 250,000 lines of each of 4 tasks on 4 hosts to a pipe.

For comparison, `clush cat` reads the same files. Every line must arrive exactly once, and the lines
of each task must be in order.
"""

from __future__ import annotations

import json

import rivals
from figures import Figures, options
from place import BenchLab, open_bench_lab
from turns import Spent, in_turns, median, ratio

RUN = "flooded"
JOB = """name: bench
mode: async
command: [python, flood.py, "{{job_name}}", "{{task_index}}", "{lines}"]
"""
PROGRAM = """import signal, sys
role, index, lines = sys.argv[1], sys.argv[2], int(sys.argv[3])
if role == "ps":
    signal.pause()
for number in range(1, lines + 1):
    sys.stdout.write(("%s:%s line %d" % (role, index, number)).ljust(60) + "\\n")
"""
MOST_BYTES = 150 << 20


def main() -> None:
    args = options(__doc__, rounds=5, hosts=4, lines=250_000)
    # n1 runs the parameter server, which prints nothing.
    with open_bench_lab(args.hosts + 1) as bench:
        measure(bench, args.lines, args.rounds, Figures("logs", args.json))


def measure(bench: BenchLab, lines: int, rounds: int, figures: Figures) -> None:
    (bench.work / "flood.py").write_text(PROGRAM)
    (bench.work / "tfdeploy.yaml").write_text(JOB.format(lines=lines))
    bench.tfdeploy("launch", "--name", RUN, "--wait", "--quiet")
    plan = json.loads(bench.tfdeploy("status", RUN, "--json").output)
    tasks = [task["task"] for task in plan["tasks"] if task["task"] != "ps:0"]
    total = lines * len(tasks)

    def ours() -> Spent:
        spent = bench.tfdeploy("logs", RUN, "--task", "worker", piped=True)
        check(spent.output, tasks, lines)
        return Spent(spent.seconds, spent.cpu_s, spent.peak_bytes)

    runs = {"tfdeploy": ours}
    files = f"cat tfdeploy/bench/runs/{RUN}/hosts/*/tasks/*/out.log"
    other = rivals.clush(bench, files, hosts=bench.addresses[1:])
    if other is not None:
        runs["clush"] = lambda: bench.run(other, piped=True)
    timings = in_turns(runs, rounds)
    what = f"logs of {len(tasks)} hosts x {lines:,} lines"
    rate = median(timings["tfdeploy"], lambda run: total / run.seconds)
    figures.add(what, rate, "lines/s", goal=400_000, at_least=True)
    if "clush" in timings:
        figures.add(
            f"clush cat, {what}",
            median(timings["clush"], lambda run: total / run.seconds),
            "lines/s",
        )
        times = 1 / ratio(timings["tfdeploy"], timings["clush"])
        figures.add(what, rate, "lines/s", ratio=times, against="clush")
    else:
        figures.skip("the same by clush", rivals.CLUSH_MISSING)
    peak = max(run.peak_bytes for run in timings["tfdeploy"])
    figures.add("peak memory", peak / (1 << 20), "MiB", goal=MOST_BYTES >> 20)


def check(output: bytes, tasks: list[str], lines: int) -> None:
    """Check, by the numbers in the lines, that the lines of each task are complete and in order."""
    seen = dict.fromkeys(tasks, 0)
    for line in output.splitlines():
        label, _, text = line.decode().partition(" | ")
        task = label.partition("@")[0]
        seen[task] += 1
        if text.split() != [task, "line", str(seen[task])]:
            raise SystemExit(f"{task}: {text.strip()!r} where line {seen[task]} was due")
    if wrong := {task: count for task, count in seen.items() if count != lines}:
        raise SystemExit(f"not all of {lines} lines: {wrong}")


if __name__ == "__main__":
    main()
