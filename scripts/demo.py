"""Train once on three throw-away hosts of this machine: sync, launch, logs, stop, clean up.

Each step is a public command of tfdeploy. The demo prints one line for each step with its seconds.
The output of the step goes to build/demo.log. On a terminal, the dashboard shows the run while it
trains. Exit code 0 means that the test accuracy is at least 0.93 and that no process of the lab
remains.
"""

from __future__ import annotations

import hashlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
EXAMPLE = REPOSITORY / "examples/digits"
# Each checkout has its own lab, so that demos of two checkouts can run at the same time.
LAB = "demo-" + hashlib.sha256(str(REPOSITORY).encode()).hexdigest()[:8]
RUN = time.strftime("demo-%Y%m%d-%H%M%S", time.gmtime())
MIN_ACCURACY = 0.93
LOG = REPOSITORY / "build/demo.log"
TAIL_LINES = 20  # how many lines of the log are printed after a failure
NEXT_STEPS = f"""
The lab of this demo is removed. What to type next:
  export PATH={REPOSITORY}/.venv/bin:$PATH
  tfdeploy init        reads your program, writes a tfdeploy.yaml and an inventory with comments
  tfdeploy lab up 3    throw-away hosts on this machine, to try your program on
README.md continues from there: "First run", or "Try it without machines"."""


def run_step(title: str, argv: list[str], *, dashboard: bool = False) -> str:
    """Run one command and print its title and seconds. Return its standard output.

    With `dashboard`, the command writes to this terminal, if there is one, and not to the log.
    Raises CalledProcessError.
    """
    on_terminal = dashboard and sys.stdout.isatty() and sys.stderr.isatty()
    print(f"demo: {title} ... ", end="\n" if on_terminal else "", file=sys.stderr, flush=True)
    began = time.monotonic()
    streams = {} if on_terminal else {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    done = subprocess.run(argv, check=False, cwd=REPOSITORY, text=True, **streams)
    with LOG.open("a") as log:
        log.write(f"--- {title}\n{done.stderr or ''}{done.stdout or ''}\n")
    seconds = f"{time.monotonic() - began:.1f} s"
    result = f"exit code {done.returncode}" if done.returncode else seconds
    print(f"demo: {result}" if on_terminal else result, file=sys.stderr, flush=True)
    done.check_returncode()
    return done.stdout or ""


def tfdeploy(*arguments: str, dashboard: bool = False) -> str:
    """Run one command of tfdeploy as a step. Return its standard output.

    Raises CalledProcessError.
    """
    argv = [sys.executable, "-m", "tfdeploy", *arguments]
    return run_step("tfdeploy " + " ".join(arguments), argv, dashboard=dashboard)


def tail_of(log: str) -> list[str]:
    """Return the last lines of the log. Lines that say what to type next are left out, because
    those commands fail once the lab is removed."""
    lines = log.splitlines(keepends=True)
    return [line for line in lines if not line.lstrip().startswith("next: ")][-TAIL_LINES:]


def remove_lab() -> None:
    """Remove the lab, even if an earlier demo that was killed created it."""
    argv = [sys.executable, "-m", "tfdeploy", "lab", "down", "--name", LAB]
    subprocess.run(argv, check=False, cwd=REPOSITORY, capture_output=True)


def find_processes(root: Path) -> list[str]:
    """Return the pids of processes whose environment names the lab or the run."""
    marks = (f"TFDEPLOY_LAB={root}", f"TFDEPLOY_TASK_RUN_ID={RUN}")
    pids = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            environment = path.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        # With the slash appended, "lab/hosts/h1" matches the lab's root, and "lab2" does not.
        if any(f"{line}/".startswith(f"{mark}/") for line in environment for mark in marks):
            pids.append(path.parent.name)
    return pids


def train(inventory: str) -> float:
    """Train the example. Return the accuracy that worker 0 printed, or 0.0 if it printed none."""
    os.environ.update(TFDEPLOY_INVENTORY=inventory, TFDEPLOY_JOB=str(EXAMPLE / "tfdeploy.yaml"))
    tfdeploy("sync")
    tasks = ("--mode", "async", "--ps", "1", "--workers", "2")
    tfdeploy("launch", *tasks, "--name", RUN, "--wait", dashboard=True)
    text = tfdeploy("logs", RUN, "--task", "worker:0", "--output", "raw")
    tfdeploy("stop", RUN)
    lines = re.findall(r"test accuracy: ([0-9.]+)", text)
    return float(lines[-1]) if lines else 0.0


def main() -> int:
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(130))
    LOG.parent.mkdir(exist_ok=True)
    LOG.write_text("")
    began = time.monotonic()
    remove_lab()
    root, accuracy = Path(), 0.0
    try:
        make_shards = [sys.executable, str(EXAMPLE / "make_shards.py")]
        run_step("python examples/digits/make_shards.py", make_shards)
        inventory = tfdeploy("lab", "up", "3", "--name", LAB, "--gpus", "none").strip()
        root = Path(inventory).parent
        accuracy = train(inventory)
    except subprocess.CalledProcessError:
        pass  # run_step has printed the exit code
    except KeyboardInterrupt:
        print("demo: interrupted", file=sys.stderr)
    finally:
        print(f"demo: tfdeploy lab down --name {LAB}", file=sys.stderr)
        remove_lab()
    pids = find_processes(root)
    for pid in pids:
        print(f"demo: process {pid} still runs", file=sys.stderr)
    passed = accuracy >= MIN_ACCURACY and not pids and not root.exists()
    seconds = f"{time.monotonic() - began:.0f} s"
    result = f"test accuracy {accuracy:.4f} (at least {MIN_ACCURACY})"
    print(f"{result}, {len(pids)} processes left, {seconds}")
    if not passed:
        print("".join(tail_of(LOG.read_text())), file=sys.stderr)
    failed = f"demo: FAILED; its lab is removed, and with it the run's logs; all output: {LOG}"
    print(f"demo: passed{NEXT_STEPS}" if passed else failed)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
