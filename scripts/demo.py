"""Do the whole job once, on three throw-away hosts of this machine: sync, launch, logs, stop, nothing left.

Only public commands of tfdeploy are called. Each prints one line with its seconds; its output goes to build/demo.log.
On a terminal the dashboard shows the run while it trains.
Exit 0: the test accuracy is at least 0.93 and no process of the lab is left.
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
LAB = "demo-" + hashlib.sha256(str(REPOSITORY).encode()).hexdigest()[:8]  # two checkouts: two labs
RUN = time.strftime("demo-%Y%m%d-%H%M%S", time.gmtime())
ENOUGH = 0.93
LOG = REPOSITORY / "build/demo.log"
TAIL_LINES = 20
NEXT = """
What to type next:
  .venv/bin/tfdeploy init        writes a commented tfdeploy.yaml and inventory beside your program
  .venv/bin/tfdeploy lab up 3    throw-away hosts on this machine, to try your program on
  README.md, "Use it on your machines", goes on from there."""


def run_step(title: str, argv: list[str], *, dashboard: bool = False) -> str:
    """Run one command and print its title and seconds. Return its standard output.

    With `dashboard`, the command has this terminal if there is one. Raises CalledProcessError.
    """
    print(f"demo: {title} ... ", end="", file=sys.stderr, flush=True)
    began = time.monotonic()
    on_terminal = dashboard and sys.stdout.isatty() and sys.stderr.isatty()
    streams = {} if on_terminal else {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    done = subprocess.run(argv, check=False, cwd=REPOSITORY, text=True, **streams)
    with LOG.open("a") as log:
        log.write(f"--- {title}\n{done.stderr or ''}{done.stdout or ''}\n")
    seconds = f"{time.monotonic() - began:.1f} s"
    print(f"exit code {done.returncode}" if done.returncode else seconds, file=sys.stderr, flush=True)
    done.check_returncode()
    return done.stdout or ""


def tfdeploy(*arguments: str, dashboard: bool = False) -> str:
    """Run one command of tfdeploy as a step. Return its standard output. Raises CalledProcessError."""
    return run_step("tfdeploy " + " ".join(arguments), [sys.executable, "-m", "tfdeploy", *arguments], dashboard=dashboard)


def down() -> None:
    """Also ends a lab that a killed demo left."""
    argv = [sys.executable, "-m", "tfdeploy", "lab", "down", "--name", LAB]
    subprocess.run(argv, check=False, cwd=REPOSITORY, capture_output=True)


def left_over(root: Path) -> list[str]:
    """Processes that still carry the mark of the lab or of the run."""
    marks = (f"TFDEPLOY_LAB={root}", f"TFDEPLOY_TASK_RUN_ID={RUN}")
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            environment = path.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if any(word == mark or word.startswith(f"{mark}/") for word in environment for mark in marks):
            found.append(path.parent.name)
    return found


def train(inventory: str) -> float:
    """Launches the digits and returns the accuracy that its worker 0 printed."""
    os.environ.update(TFDEPLOY_INVENTORY=inventory, TFDEPLOY_JOB=str(EXAMPLE / "tfdeploy.yaml"))
    tfdeploy("sync")
    tfdeploy("launch", "--mode", "async", "--ps", "1", "--workers", "2", "--name", RUN, "--wait", dashboard=True)
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
    down()
    root, accuracy = Path(), 0.0
    try:
        run_step("python examples/digits/make_shards.py", [sys.executable, str(EXAMPLE / "make_shards.py")])
        inventory = tfdeploy("lab", "up", "3", "--name", LAB, "--gpus", "none").strip()
        root = Path(inventory).parent
        accuracy = train(inventory)
    except subprocess.CalledProcessError:
        pass  # its step has said so
    except KeyboardInterrupt:
        print("demo: interrupted", file=sys.stderr)
    finally:
        print(f"demo: tfdeploy lab down --name {LAB}", file=sys.stderr)
        down()
    left = left_over(root)
    for pid in left:
        print(f"demo: process {pid} is left", file=sys.stderr)
    good = accuracy >= ENOUGH and not left and not root.exists()
    print(f"test accuracy {accuracy:.4f} (at least {ENOUGH}), {len(left)} processes left, {time.monotonic() - began:.0f} s")
    if not good:
        print("".join(LOG.read_text().splitlines(keepends=True)[-TAIL_LINES:]), file=sys.stderr)
    print(f"demo: all is well{NEXT}" if good else f"demo: FAILED; all output: {LOG}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
