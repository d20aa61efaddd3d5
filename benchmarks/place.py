"""Create a lab of isolated hosts for a benchmark, and an operator with a separate home folder.

Both are removed at the end.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from figures import say
from turns import Spent, spend

from tfdeploy import lab
from tfdeploy.lab import Lab

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.lab.host_commands import host_command

REPOSITORY = Path(__file__).resolve().parents[1]
TFDEPLOY = str(Path(sys.executable).parent / "tfdeploy")
FILES_PER_FOLDER = 50
USER = "lab"
TICKS = os.sysconf("SC_CLK_TCK")
BURIAL_S = 3.0


@dataclass(frozen=True)
class BenchLab:
    lab: Lab
    home: Path  # the operator's home folder
    work: Path  # the folder in which the operator's commands run
    env: dict[str, str]

    @property
    def addresses(self) -> list[str]:
        return [row["address"] for row in self.lab.status()]

    def with_checkout(self, tree: Path) -> BenchLab:
        """Return the same lab with the tfdeploy of another checkout."""
        return replace(self, env={**self.env, "PYTHONPATH": str(tree)})

    def tfdeploy(self, *args: str, piped: bool = False, may_fail: bool = False) -> Spent:
        return self.run([TFDEPLOY, *args], piped=piped, may_fail=may_fail)

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        piped: bool = False,
        may_fail: bool = False,
    ) -> Spent:
        """Run a command as the operator. Return its cost, including the CPU time of the processes
        on the hosts."""
        before = self.served()
        command = self.lab.operator_command(argv)
        spent = spend(
            command, env=self.env, cwd=self.work, stdin=stdin, piped=piped, may_fail=may_fail
        )
        return Spent(
            spent.seconds,
            spent.cpu_s,
            spent.peak_bytes,
            spent.output,
            {"hosts_cpu_s": self.served() - before},
        )

    def run_everywhere(self, script: str) -> list[str]:
        """Run a script on all hosts at the same time, without SSH. Return the outputs."""
        started = [
            subprocess.Popen(
                host_command(self.lab, host, ["sh", "-c", script]),
                stdout=subprocess.PIPE,
                text=True,
            )
            for host in self.lab.hosts
        ]
        output = [process.communicate()[0] for process in started]
        if failed := [process.returncode for process in started if process.returncode]:
            raise SystemExit(f"{script}: exit {failed[0]} on a host")
        return output

    def served(self) -> float:
        """Return the CPU seconds that the hosts' first processes and their children have used.

        First wait until no sshd has a session, for at most BURIAL_S seconds.
        """
        first = [row["pid"] for row in self.lab.status() if row["pid"] is not None]
        servers = [child for pid in first for child in _children(pid)]
        listeners = [pid for pid in servers if _name(pid) == "sshd"]
        deadline = time.monotonic() + BURIAL_S
        while any(_children(pid) for pid in listeners) and time.monotonic() < deadline:
            time.sleep(0.01)
        # Parents are read last, because their CPU time includes that of children that have ended.
        return sum(map(_ticks, [*servers, *first])) / TICKS


def _name(pid: int) -> str:
    """Return the name of the process's program, or "" if the process has ended."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _children(pid: int) -> list[int]:
    """Return the pids of the process's children, or [] if the process has ended."""
    try:
        return [
            int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        ]
    except (FileNotFoundError, ProcessLookupError):
        return []


def _ticks(pid: int) -> int:
    """Return the CPU ticks of the process and of those of its children that have ended.

    Return 0 if the process itself has ended: its ticks are then part of its parent's.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return sum(int(ticks) for ticks in fields[11:15])


@contextmanager
def open_bench_lab(hosts: int, **wishes: Any) -> Iterator[BenchLab]:
    """Yield a lab of isolated hosts n1..nN, with an operator.

    This needs root. `wishes` are options of `lab.create_or_revive`. No figure includes the time to
    start or remove the lab.
    """
    if os.geteuid() != 0:
        raise SystemExit("isolated hosts need root: sudo make bench")
    signal.signal(signal.SIGTERM, _leave)
    name = f"bench-{os.getpid()}"
    home = Path(tempfile.mkdtemp(prefix="tfdeploy-bench-"))
    work = home / "work"
    work.mkdir()
    try:
        say(f"{hosts} isolated hosts (lab {name})")
        up = lab.create_or_revive(name, "isolated", hosts, **wishes)
        yield BenchLab(up, home, work, _environment(home, up))
    finally:
        if name in lab.names():
            lab.down(name)
        shutil.rmtree(home, ignore_errors=True)


def _leave(number: int, _: object) -> None:
    """Exit on the first signal and ignore the second one.

    `timeout` sends its signal twice, and the second one must not interrupt the cleanup.
    """
    signal.signal(number, signal.SIG_IGN)
    sys.exit(128 + number)


def _environment(home: Path, up: Lab) -> dict[str, str]:
    return {
        "HOME": str(home),
        "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin",
        "LC_ALL": "C.UTF-8",
        "PYTHONPATH": str(REPOSITORY),
        "XDG_STATE_HOME": str(home / "state"),
        "TFDEPLOY_INVENTORY": str(up.inventory),
    }


def write_sources(root: Path, files: int) -> Path:
    """Write `files` files of 0.2 to 4 KiB in folders of 50. Return the path of the last file."""
    words = random.Random(files)
    for number in range(files):
        path = (
            root
            / f"package{number // FILES_PER_FOLDER:03}"
            / f"module{number % FILES_PER_FOLDER:02}.py"
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            "".join(
                f"x{words.randrange(10**9)} = {words.random()}\n"
                for _ in range(words.randrange(6, 120))
            )
        )
    return path


def change_file(path: Path) -> None:
    """Append a line to the file, so that its size, time and content change."""
    with path.open("a") as stream:
        stream.write(f"changed = {random.random()}\n")
