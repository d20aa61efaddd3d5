"""Compare the CPU time that the agent's processes (serve, minder, supervise) take to start in this
checkout and in another one.

    python benchmarks/agent_starts.py --against ../before --pairs 300

Each pair starts the agents of both checkouts, in random order. The time is the user and system time
of the process and of the process that starts it. Waiting time does not count.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from turns import interval

HERE = Path(__file__).resolve().parent.parent
PACKED = """
import hashlib, json, sys
try:
    from tfdeploy.agent.serve import server
    from tfdeploy.transport.agent import archive, bootstrap
except ImportError:  # a checkout from before the modules had rooms
    import tfdeploy.agent.serve as server
    from tfdeploy.transport import agentzip as archive, bootstrap
told = "--host" in open(server.__file__).read()
header = json.dumps([archive.agent_name(), len(bootstrap.PROGRAM), told])
sys.stdout.buffer.write(header.encode() + b"\\n")
sys.stdout.buffer.write(bootstrap.PROGRAM)
if hasattr(archive, "packed_agent"):
    packed, checksum_field = archive.packed_agent(), b""
else:  # a checkout that sends a zip
    packed = archive.agent_zip()
    checksum_field = hashlib.sha256(packed).hexdigest().encode() + b" "
sys.stdout.buffer.write(checksum_field + b"%d\\n" % len(packed) + packed)
"""
START = """
import subprocess, sys
sys.path.insert(0, sys.argv[1])
try:
    from tfdeploy.agent.run.folder import agent_command
except ImportError:
    from tfdeploy.agent.paths import agent_command
sys.exit(subprocess.call(agent_command(*sys.argv[2:]), stdin=subprocess.DEVNULL))
"""


class Checkout:
    """The agent of one checkout in a workdir of its own. The workdir has a run that has ended."""

    def __init__(self, source: Path, workdir: Path) -> None:
        done = subprocess.run(
            [sys.executable, "-c", PACKED], cwd=source, capture_output=True, check=True
        )
        head, _, rest = done.stdout.partition(b"\n")
        self.name, self.length, told = json.loads(head)
        self.program, self.upload = rest[: self.length], rest[self.length :]
        self.line = f"{self.name} n1 {workdir}\n" if told else f"{self.name} {workdir}\n"
        self.folder = workdir / ".agent" / self.name
        self.host_dir = workdir / "job/runs/r1/hosts/n1"
        self._lay_out()
        self.serve()

    def serve(self) -> float:
        """Start `serve`, wait for its greeting and close its input. Return the CPU time of the
        process in ms."""
        command = [
            sys.executable,
            "-S",
            "-E",
            "-c",
            f"import sys;exec(sys.stdin.buffer.read({self.length}))",
        ]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdin and process.stdout
        process.stdin.write(self.program + self.line.encode())
        process.stdin.flush()
        process.stdout.readline()
        if process.stdout.readline() == b"=tfdeploy-need=\n":
            process.stdin.write(self.upload)
        process.stdin.close()
        said = process.stdout.read()
        assert b"=tfdeploy-agent=" in said, said
        return spent(process)

    def minder(self) -> float:
        """Start a minder (the process that looks after a run on a host) for a run that has ended.
        Return the minder's CPU time in ms."""
        return self._start("minder", str(self.host_dir))

    def supervise(self) -> float:
        """Start a supervisor (the parent process of a task) for a run that has ended. Return the
        supervisor's CPU time in ms."""
        return self._start("supervise", str(self.host_dir), "worker:0", "1", "1")

    def _start(self, *args: str) -> float:
        return spent(
            subprocess.Popen([sys.executable, "-S", "-E", "-c", START, str(self.folder), *args])
        )

    def _lay_out(self) -> None:
        (self.host_dir / "tasks/worker-0").mkdir(parents=True)
        for folder in (self.host_dir, *self.host_dir.parents[:6]):
            folder.chmod(0o700)
        task = {"task": "worker:0", "role": "worker", "index": 0, "argv": ["true"], "env": {}}
        part = {
            "run": "r1",
            "job": "job",
            "mode": "async",
            "host": "n1",
            "plan_digest": "d",
            "release": "r",
            "tasks": [task],
        }
        (self.host_dir / "part.json").write_text(json.dumps(part))
        (self.host_dir / "state.json").write_text(
            json.dumps({"run": "r1", "job": "job", "host": "n1", "phase": "ended"})
        )


def spent(process: subprocess.Popen[bytes]) -> float:
    """Return the CPU time in ms of the process, including the children that it has waited for."""
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, process.args
    return (used.ru_utime + used.ru_stime) * 1000


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--against", type=Path, required=True, help="the folder of the other checkout"
    )
    parser.add_argument("--pairs", type=int, default=300)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as bench:
        before = Checkout(args.against.resolve(), Path(bench) / "before")
        after = Checkout(HERE, Path(bench) / "after")
        for what in ("serve", "minder", "supervise"):
            report(what, [pair(what, before, after) for _ in range(args.pairs + 3)][3:])


def pair(what: str, before: Any, after: Any) -> tuple[float, float]:
    both = [before, after]
    random.shuffle(both)
    values = {one: getattr(one, what)() for one in both}
    return values[before], values[after]


def report(what: str, pairs: list[tuple[float, float]]) -> None:
    old, new = (statistics.median(side) for side in zip(*pairs, strict=True))
    more = [after - before for before, after in pairs]
    low, high = interval(more)
    summary = (
        f"median of {len(pairs)} differences {statistics.median(more):+6.2f} ms, 95 % {low:+.2f} "
        f"to {high:+.2f}"
    )
    print(f"{what:10} {old:7.2f} -> {new:7.2f} ms of CPU, {summary}", flush=True)


if __name__ == "__main__":
    main()
