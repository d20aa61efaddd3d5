"""The whole job in one go, on three throw-away hosts of this machine: code and data out, training, logs, stop, nothing left.

Only public commands of tfdeploy are called. On a terminal the run is shown by the dashboard, elsewhere in plain lines.
Exit 0: the test accuracy is at least 0.93 and no process of the lab is left.
"""

from __future__ import annotations

import hashlib
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


def say(text: str) -> None:
    print(f"\n--- {text}", file=sys.stderr, flush=True)


def tfdeploy(*words: str, keep_output: bool = False) -> str:
    """Shows and runs one command. Raises CalledProcessError."""
    say("tfdeploy " + " ".join(words))
    argv = [sys.executable, "-m", "tfdeploy", *words]
    return (
        subprocess.run(argv, check=True, cwd=REPOSITORY, text=True, stdout=subprocess.PIPE if keep_output else None).stdout or ""
    )


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
    where = ("-i", inventory, "-j", str(EXAMPLE / "tfdeploy.yaml"))
    tfdeploy("sync", *where)
    tfdeploy("launch", *where, "--mode", "async", "--ps", "1", "--workers", "2", "--name", RUN, "--wait")
    text = tfdeploy("logs", RUN, *where, "--task", "worker:0", "--output", "raw", keep_output=True)
    tfdeploy("stop", RUN, *where)
    lines = re.findall(r"test accuracy: ([0-9.]+)", text)
    if not lines:
        print(text[-2000:], file=sys.stderr)
        return 0.0
    return float(lines[-1])


def main() -> int:
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(130))
    subprocess.run([sys.executable, str(EXAMPLE / "make_shards.py")], check=True, stdout=sys.stderr)
    began = time.monotonic()
    down()
    root, accuracy = Path(), 0.0
    try:
        inventory = tfdeploy("lab", "up", "3", "--name", LAB, "--gpus", "none", keep_output=True).strip()
        root = Path(inventory).parent
        accuracy = train(inventory)
    except subprocess.CalledProcessError as error:
        print(f"demo: that command ended with {error.returncode}", file=sys.stderr)
    except KeyboardInterrupt:
        print("demo: interrupted", file=sys.stderr)
    finally:
        say(f"tfdeploy lab down --name {LAB}")
        down()
    left = left_over(root)
    for pid in left:
        print(f"demo: process {pid} is left", file=sys.stderr)
    good = accuracy >= ENOUGH and not left and not root.exists()
    print(f"\ntest accuracy {accuracy:.4f} (at least {ENOUGH}), {len(left)} processes left, {time.monotonic() - began:.0f} s")
    print("demo: all is well" if good else "demo: FAILED")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
