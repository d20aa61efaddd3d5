"""Where benchmarks run: a lab of isolated hosts, and an operator with a home of its own. Gone
afterwards, whatever happens."""

from __future__ import annotations

import os
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

REPOSITORY = Path(__file__).resolve().parents[1]
TFDEPLOY = str(Path(sys.executable).parent / "tfdeploy")
USER = "lab"
TICKS = os.sysconf("SC_CLK_TCK")
BURIAL_S = 3.0


@dataclass(frozen=True)
class Place:
    lab: Lab
    home: Path  # of the operator
    work: Path  # where its commands run
    env: dict[str, str]

    @property
    def addresses(self) -> list[str]:
        return [row["address"] for row in self.lab.status()]

    def of(self, tree: Path) -> Place:
        """The same place, where `tfdeploy` is another checkout's."""
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
        """As the operator, with what the hosts' own processes cost meanwhile beside it."""
        before = self.served()
        command = self.lab.operator(argv)
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

    def everywhere(self, script: str) -> list[str]:
        """Runs a script on every host, without SSH and all at once; what each said."""
        started = [
            subprocess.Popen(
                self.lab.on(host, ["sh", "-c", script]), stdout=subprocess.PIPE, text=True
            )
            for host in self.lab.hosts
        ]
        output = [process.communicate()[0] for process in started]
        if failed := [process.returncode for process in started if process.returncode]:
            raise SystemExit(f"{script}: exit {failed[0]} on a host")
        return output

    def served(self) -> float:
        """CPU seconds of the hosts' first processes and their children, once their sshds have no
        session left."""
        first = [row["pid"] for row in self.lab.status() if row["pid"] is not None]
        servers = [child for pid in first for child in _children(pid)]
        listeners = [pid for pid in servers if _name(pid) == "sshd"]
        deadline = time.monotonic() + BURIAL_S
        while any(_children(pid) for pid in listeners) and time.monotonic() < deadline:
            time.sleep(0.01)
        # parents last: they have what their dead children cost
        return sum(map(_ticks, [*servers, *first])) / TICKS


def _name(pid: int) -> str:
    """Return the name of the program, empty if the process has ended."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _children(pid: int) -> list[int]:
    """None of a process that has ended meanwhile."""
    try:
        return [
            int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        ]
    except (FileNotFoundError, ProcessLookupError):
        return []


def _ticks(pid: int) -> int:
    """Of the process and of its dead children. One that has ended meanwhile counts with its
    parent."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return sum(int(ticks) for ticks in fields[11:15])


@contextmanager
def a_lab(hosts: int, **wishes: Any) -> Iterator[Place]:
    """Isolated hosts n1..nN; `wishes` are those of `lab.up`. Needs root. Beginning and end are
    never part of a figure."""
    if os.geteuid() != 0:
        raise SystemExit("isolated hosts need root: sudo make bench")
    signal.signal(signal.SIGTERM, _leave)
    name = f"bench-{os.getpid()}"
    home = Path(tempfile.mkdtemp(prefix="tfdeploy-bench-"))
    work = home / "work"
    work.mkdir()
    try:
        say(f"{hosts} isolated hosts (lab {name})")
        up = lab.up(name, "isolated", hosts, **wishes)
        yield Place(up, home, work, _environment(home, up))
    finally:
        if name in lab.names():
            lab.down(name)
        shutil.rmtree(home, ignore_errors=True)


def _leave(number: int, _: object) -> None:
    """Once: `timeout` sends its signal twice, and the second one must not end the cleaning up."""
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
