"""Measure how much a task slows down tfdeploy if its lines are expensive to search for metrics.

The task writes 10,000 lines of 4 KiB a second, in each form of tests/lab/programs/costly_lines.py
in turn. The job has a regular expression whose matching never ends. The same run is measured first
without the task's lines, then with them. On the client, the figures are the time and CPU of
`status` and of `logs -n 100`, and the time from pressing `q` to the end of the dashboard. On the
host, they are the number of samples (measurements of the task), and the CPU of the sampler and of
the task's supervisor (its parent process).
"""

from __future__ import annotations

import json
import os
import pty
import select
import shutil
import subprocess
import time
from pathlib import Path

from figures import Figures, options, say
from place import TFDEPLOY, BenchLab, open_bench_lab

PROGRAM = Path(__file__).parents[1] / "tests" / "lab" / "programs" / "costly_lines.py"
JOB = """name: bench
mode: async
command: [python, costly_lines.py, --rate=RATE, --floods=FLOODS]
metrics: {endless: '(.+)+!'}
ready: {after: 1s}
"""
# the dashboard is open for this long in all, so that at least two samples are taken meanwhile
WATCHED_S = 25.0
LEFT = b"\x1b[?1049l"


def main() -> None:
    args = options(__doc__, rounds=3, hosts=3, rate=10_000)
    figures = Figures("costly lines", args.json)
    with open_bench_lab(args.hosts) as bench:
        shutil.copy(PROGRAM, bench.work / PROGRAM.name)
        for name, floods in (("quiet", 0), ("costly", 1)):
            job = JOB.replace("RATE", str(args.rate)).replace("FLOODS", str(floods))
            (bench.work / "tfdeploy.yaml").write_text(job)
            bench.tfdeploy("launch", "--detach", "--name", name)
            time.sleep(5)
            measure(bench, figures, name, args.rounds)
            bench.tfdeploy("stop", name, "--now")


def measure(bench: BenchLab, figures: Figures, name: str, rounds: int) -> None:
    for verb, more in (("status", ()), ("logs", ("-n", "100"))):
        spent = [bench.tfdeploy(verb, name, *more, piped=True) for _ in range(rounds)]
        figures.add(f"{name}: {verb}", min(each.seconds for each in spent), "s")
        figures.add(f"{name}: {verb}, CPU", min(each.cpu_s for each in spent), "s")
    before = on_host(bench, name)
    answers = [q_answered(bench, name, wait_s) for wait_s in (3.0, 5.0, WATCHED_S - 8.0)]
    figures.add(f"{name}: dashboard, from q to its end, worst", max(answers), "s", goal=0.3)
    after = on_host(bench, name)
    passed_s = after[0] - before[0]
    say(f"{name}: in {passed_s:.0f} s: {after[1] - before[1]} samples")
    figures.add(f"{name}: sampler, CPU", (after[2] - before[2]) / passed_s * 100, "% of a core")
    figures.add(f"{name}: written", (after[4] - before[4]) / passed_s / 1e6, "MB/s")
    figures.add(f"{name}: supervisor, CPU", (after[3] - before[3]) / passed_s * 100, "% of a core")


def q_answered(bench: BenchLab, name: str, wait_s: float) -> float:
    """Return the seconds from pressing `q` until the dashboard has restored the ordinary screen."""
    control, end = pty.openpty()
    command = bench.lab.operator_command([TFDEPLOY, "status", name, "--watch"])
    env = {**bench.env, "TERM": "xterm-256color"}
    process = subprocess.Popen(
        command, stdin=end, stdout=end, stderr=end, env=env, cwd=bench.work, start_new_session=True
    )
    os.close(end)
    read_for(control, wait_s, b"")
    began = time.monotonic()
    os.write(control, b"q")
    assert read_for(control, 60.0, LEFT)
    took = time.monotonic() - began
    read_for(control, 1.0, b"")
    process.wait(60)
    os.close(control)
    return took


def read_for(control: int, seconds: float, until: bytes) -> bool:
    """Read until `until` appears, for at most `seconds`. Return True if it appeared."""
    came, end = b"", time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        if select.select([control], [], [], left)[0]:
            try:
                came = came[-16:] + os.read(control, 1 << 16)
            except OSError:
                return False
            if until and until in came:
                return True
    return False


def on_host(bench: BenchLab, name: str) -> tuple[float, int, float, float, int]:
    """Return the figures of worker:0 that are measured on its host.

    They are the monotonic time in seconds, the number of samples, the CPU seconds of the samplers,
    the CPU seconds of the task's supervisor, and the size of the task's log in bytes.
    """
    (task,) = bench.lab.root.glob(f"hosts/*/home/tfdeploy/bench/runs/{name}/hosts/*/tasks/worker-0")
    samples = (task / "samples").read_text().count("\n") if (task / "samples").exists() else 0
    folder = str(task.parents[1]).partition("/home/")[2]
    cpu = {"sample": 0.0, "supervise": 0.0}
    for proc in Path("/proc").glob("[0-9]*"):
        try:
            argv = (proc / "cmdline").read_bytes().decode(errors="replace").split("\0")
            fields = (proc / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        for verb in cpu:
            if (
                verb in argv
                and any(folder in word for word in argv)
                and (verb == "sample" or "worker:0" in argv)
            ):
                cpu[verb] += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    written = json.loads((task / "status.json").read_text())["log_bytes"]
    return time.monotonic(), samples, cpu["sample"], cpu["supervise"], written


if __name__ == "__main__":
    main()
