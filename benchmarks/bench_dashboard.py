"""Measure what the dashboard costs.

There are three cases: lines that arrive from 4 hosts, 256 tasks on the screen, and 28.8 million
lines. In the first case a real run in a lab prints the lines, and the dashboard is `tfdeploy status
--watch` on its own terminal. In the other two cases, the process that draws the dashboard also
makes the events.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import resource
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from dataclasses import dataclass, field
from pathlib import Path

from figures import Figures, options, say
from place import TFDEPLOY, BenchLab, open_bench_lab

from tfdeploy.model.loglines import LogLine
from tfdeploy.model.plan import TaskPlan

HERE = Path(__file__).resolve()
JOB = """name: bench
mode: plain
command: [python, talk.py, "{rank}", "RATE"]
ready: {after: 1s}
"""
PROGRAM = """import sys, time
rank, rate = int(sys.argv[1]), float(sys.argv[2])
began, said = time.time(), 0
while True:
    now = time.time()
    due = int((now - began) * rate)
    text = "".join("step %d loss 0.5 sent=%.6f\\n" % (number, now) for number in range(said, due))
    said = due
    sys.stdout.write(text)
    sys.stdout.flush()
    time.sleep(0.02)
"""
SENT = re.compile(rb"sent=(\d+\.\d{6})")
TASKS, SAMPLES = 256, 5
COLUMNS, ROWS = 120, 40
MILLION = 1_000_000


def main() -> None:
    args = options(__doc__, rounds=1, hosts=4, seconds=20, parts="lines,many,memory", millions=29)
    figures, parts = Figures("dashboard", args.json), args.parts.split(",")
    if "lines" in parts:
        with open_bench_lab(args.hosts) as bench:
            for rate, goal in ((50_000, 15.0), (50, 3.0)):
                arriving(bench, rate, args.hosts, args.seconds, figures, goal)
    if "many" in parts:
        many(args.seconds, figures)
    if "memory" in parts:
        memory(args.millions, figures)


@dataclass
class Watched:
    """The cost of a dashboard while tasks print lines. `late_s` is the time from the moment when a
    task writes a line until the screen shows that line."""

    cpu_s: float
    seconds: float
    late_s: list[float] = field(default_factory=list)

    @property
    def percent(self) -> float:
        return 100 * self.cpu_s / self.seconds


def arriving(
    bench: BenchLab, rate: int, hosts: int, seconds: float, figures: Figures, goal: float
) -> None:
    """Measure the dashboard while tasks write `rate` lines a second in total."""
    run = f"talk-{rate}"
    (bench.work / "talk.py").write_text(PROGRAM)
    (bench.work / "tfdeploy.yaml").write_text(JOB.replace("RATE", str(rate / hosts)))
    bench.tfdeploy("launch", "--name", run, "--detach", "--quiet")
    try:
        seen = watched(
            bench.lab.operator_command([TFDEPLOY, "status", run, "--watch"]),
            bench.env,
            bench.work,
            seconds,
        )
    finally:
        bench.tfdeploy("stop", run, "--now", "--yes", may_fail=True)
    figures.add(f"{rate:,} lines/s from {hosts} hosts", seen.percent, "% core", goal=goal)
    if seen.late_s:
        late = sorted(seen.late_s)
        figures.add(
            f"line to screen, p99 of {len(late)}",
            1000 * late[int(0.99 * (len(late) - 1))],
            "ms",
            goal=300,
        )


def watched(args: list[str], env: dict[str, str], cwd: Path, seconds: float) -> Watched:
    """Start a program on a terminal, and measure it for some seconds after its start.

    Return the program's CPU time in these seconds, and the delay of each line with `sent=TIME`: the
    seconds from TIME until the line appears.
    """
    control, end = pty.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    process = subprocess.Popen(
        args,
        stdin=end,
        stdout=end,
        stderr=end,
        cwd=cwd,
        env={**env, "TERM": "xterm-256color"},
        start_new_session=True,
    )
    os.close(end)
    late: list[float] = []
    newest = 0.0
    try:
        begun, standing = time.monotonic(), None
        before = 0.0
        while standing is None or time.monotonic() - standing < seconds:
            if not select.select([control], [], [], 1.0)[0]:
                continue
            shown = os.read(control, 1 << 20)
            now = time.time()
            if standing is None and SENT.search(shown) and time.monotonic() - begun > 5:
                standing, before = time.monotonic(), spent(process.pid)
                # Lines that were already on the screen do not count as late.
                newest = max(float(sent) for sent in SENT.findall(shown))
            for match in SENT.finditer(shown) if standing is not None else ():
                sent = float(match[1])
                if sent > newest:
                    newest = sent
                    late.append(now - sent)
        return Watched(spent(process.pid) - before, time.monotonic() - standing, late)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        os.close(control)


def spent(pid: int) -> float:
    """Return the CPU seconds of `pid` and of the processes below it."""
    ticks = 0
    for each in [pid, *below(pid)]:
        try:
            fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def below(pid: int) -> list[int]:
    try:
        children = [
            int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        ]
    except OSError:
        return []
    return children + [each for child in children for each in below(child)]


def many(seconds: float, figures: Figures) -> None:
    """Measure the dashboard with 256 tasks at its own frame rate. Each task has a new line every
    second, and a sample (a measurement of the task) every ten seconds."""
    done = alone("many", seconds)
    figures.add(
        f"{TASKS} tasks at {done['frames'] / done['seconds']:.1f} frames/s",
        done["percent"],
        "% core",
        goal=30,
    )


def memory(millions: int, figures: Figures) -> None:
    done = alone("memory", millions)
    figures.add(f"{done['lines']:,} lines replayed", done["rate"], "lines/s")
    figures.add("resident memory after the first million", done["first"] / (1 << 20), "MiB")
    figures.add("resident memory at the end", done["last"] / done["first"], "x first", goal=1.1)


def alone(part: str, amount: float) -> dict[str, float]:
    """Measure one part of the benchmark in a process of its own, so that the CPU time and memory of
    other parts do not count."""
    out = subprocess.run(
        [sys.executable, str(HERE), "--alone", part, str(amount)],
        stdout=subprocess.PIPE,
        check=True,
    )
    answer: dict[str, float] = json.loads(out.stdout)
    return answer


def in_this_process(part: str, amount: float) -> dict[str, float]:
    sys.path[:0] = [str(HERE.parents[1] / folder) for folder in (".", "scripts", "tests")]
    from tfdeploy.ui.dashboard.dashboard import Dashboard

    control, end = pty.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    os.dup2(end, 2)  # the dashboard draws on stderr
    os.environ["TERM"] = "xterm-256color"
    board = Dashboard(in_fd=end)
    return {"many": _many, "memory": _memory}[part](board, control, amount)


def _many(board: object, control: int, seconds: float) -> dict[str, float]:
    import threading

    from support.screens import begun, job, loss, used
    from tfdeploy.ui.dashboard.dashboard import Dashboard

    assert isinstance(board, Dashboard)
    plan = job(TASKS - 1)
    for event in begun(plan):
        board(event)
    frames, draw = [0], board.draw

    def counted(*what: object) -> None:
        frames[0] += 1
        draw(*what)  # type: ignore[arg-type]

    board.draw = counted  # type: ignore[method-assign]

    def feed() -> None:
        began = time.monotonic()
        ticks = 0
        while (passed := time.monotonic() - began) < seconds:
            for number, task in enumerate(plan.tasks):
                if number % 8 == ticks % 8:
                    text = f"step {20 * ticks} loss: {loss(20 * ticks):.4f}".encode()
                    board.take_lines([line_of(task, 1010.0 + passed, text)])
            if ticks % 80 == 0:
                for event in used(plan, 1010.0 + passed):
                    board(event)
            ticks += 1
            time.sleep(1 / 8)
        board.view.quit = True

    drain(control)
    threading.Thread(target=feed, daemon=True).start()
    began, cpu = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF)
    board.run()
    after = resource.getrusage(resource.RUSAGE_SELF)
    lasted = time.monotonic() - began
    used_s = after.ru_utime + after.ru_stime - cpu.ru_utime - cpu.ru_stime
    return {"percent": 100 * used_s / lasted, "frames": float(frames[0]), "seconds": lasted}


def _memory(board: object, control: int, millions: float) -> dict[str, float]:
    import threading

    from support.screens import begun, job
    from tfdeploy.ui.dashboard.dashboard import Dashboard

    assert isinstance(board, Dashboard)
    plan, size, total = job(7), 1000, int(millions * MILLION)
    for event in begun(plan):
        board(event)
    first = [0.0]
    ended: list[float] = []

    def feed() -> None:
        for number in range(0, total, size):
            task = plan.tasks[1 + number // size % 7]
            at = 1010.0 + number / 1000  # a thousand lines a second
            texts = [b"step %d loss 0.5" % (number + each) for each in range(size)]
            rows = [line_of(task, at, text) for text in texts]
            while board._waiting > 10_000:
                time.sleep(0.0005)
            board.take_lines(rows)
            if number == MILLION:
                first[0] = resident()
        while board._queue:
            time.sleep(0.001)
        ended.append(resident())
        board.view.quit = True

    drain(control)
    began = time.monotonic()
    threading.Thread(target=feed, daemon=True).start()
    board.run()
    return {
        "lines": total,
        "rate": total / (time.monotonic() - began),
        "first": first[0],
        "last": ended[0],
    }


def line_of(task: TaskPlan, time: float, text: bytes) -> LogLine:
    return LogLine(time=time, task=task.task, host=task.host, attempt=1, stream="out", line=text)


def drain(control: int) -> None:
    """Read the terminal's output in a separate process."""
    if os.fork() == 0:
        os.closerange(0, 3)
        parent = os.getppid()
        while os.getppid() == parent:
            if select.select([control], [], [], 1.0)[0]:
                os.read(control, 1 << 16)
        os._exit(0)


def resident() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * float(os.sysconf("SC_PAGE_SIZE"))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--alone"]:
        print(json.dumps(in_this_process(sys.argv[2], float(sys.argv[3]))))
    else:
        say("the dashboard")
        main()
