"""Apply a random sequence of faults to a run, and check what must be true after any sequence.

One seed determines all random choices. The test has a small model of the run: which hosts are on
and connected, which tasks are frozen, and whether somebody stopped the run. After all faults are
repaired, the run must end as the model predicts, and no process, lock or file of the run may
remain.
"""

from __future__ import annotations

import json
import random
import re
import subprocess
import time
from collections.abc import Callable
from typing import Any

from support.lab.commandline import Tfdeploy
from support.lab.hosts import on_host
from support.lab.jobs import write_job
from support.lab.remains import find_remains
from support.lab.run_files import host_folder, host_state, kill, task_status
from support.waiting import wait_for

ENDS_S = 120.0
LET_BYTES, LET_S = 4000, 3.0
# The final states that a run may have after `tfdeploy stop`. It may have succeeded just before the
# stop.
STOPPED = ("stopped", "succeeded")
FINAL = ("succeeded", "failed", "stopped", "lost")
TASKS = {
    "async": {"ps:0": "n1", "worker:0": "n2", "worker:1": "n3", "worker:2": "n4"},
    "mirrored": {"worker:0": "n2", "worker:1": "n3", "worker:2": "n4"},
}
PROGRAMS = {"async": ("quick.py", "--steps=150"), "mirrored": ("any_mode.py", "--steps=60")}


class Walk:
    """A run with random faults and repairs, on a lab of four isolated hosts.

    `said` lists the steps so far, to explain a failure.
    """

    def __init__(self, operator: Tfdeploy, other: Tfdeploy, seed: int) -> None:
        self.operator, self.other, self.chance = operator, other, random.Random(seed)
        self.lab = operator.lab
        self.mode = self.chance.choice(tuple(TASKS))
        self.tasks = TASKS[self.mode]
        self.job = f"walk-{self.mode}"
        self.run = f"{self.job}-{seed}"
        self.off: set[str] = set()
        self.cut: set[str] = set()
        # {task: pid} of the tasks that are frozen (SIGSTOP)
        self.frozen: dict[str, int] = {}
        self.stopped = False
        self.began = time.monotonic()
        self.said = [f"seed {seed}: {self.mode}"]

    def begin(self) -> None:
        program, *flags = PROGRAMS[self.mode]
        restart = {"max": 100, "backoff": ["100ms", "300ms"]}
        for each in (self.operator, self.other):
            write_job(
                each,
                self.job,
                program,
                *flags,
                mode=self.mode,
                restart=restart,
                stop={"grace": "2s"},
            )
        self.operator.run("launch", "--detach", "--name", self.run, exit_code=0)
        self.followed = self.operator.home / f"followed-{self.run}"
        with self.followed.open("w") as out:
            self.following = self.operator.start(
                "logs", "-f", "--output", "json", self.run, stdout=out
            )

    def step(self) -> None:
        """Apply one random fault or repair."""
        ways: list[Callable[[], None]] = (
            [self._kill_task] * 3 + [self._kill_keeper] * 2 + [self._freeze, self._thaw]
        )
        ways += [self._let_it_run]
        ways += [self._cut, self._power_off] if len(self.off | self.cut) < 2 else []
        ways += [self._heal] * 2 if self.cut else []
        ways += [self._boot] * 2 if self.off else []
        if not self.off and not self.cut:
            ways += [self._second_launch, self._second_status]
        if not self.stopped and self.chance.random() < 0.1:
            ways = [self._stop]
        self.chance.choice(ways)()

    # --- faults and repairs

    def _living(self) -> list[str]:
        return [task for task, host in self.tasks.items() if host not in self.off]

    def _pid_of(self, task: str) -> int | None:
        try:
            process_status = task_status(self.operator, self.run, self.job, self.tasks[task], task)
        except (AssertionError, ValueError):
            return None
        return process_status["pid"] if process_status["state"] in ("starting", "running") else None

    def _signal(self, host: str, pid: int | None, number: int = 9) -> bool:
        """Send a signal. Return False if the process no longer exists."""
        if pid is None:
            return False
        try:
            kill(self.operator, host, pid, number=number)
        except AssertionError:
            return False
        return True

    def _kill_task(self) -> None:
        task = self.chance.choice(self._living())
        self._tell("kill", task, self._signal(self.tasks[task], self._pid_of(task)))
        self.frozen.pop(task, None)

    def _kill_keeper(self) -> None:
        task = self.chance.choice(self._living())
        host = self.tasks[task]
        if self.chance.random() < 0.5:
            pid = host_state(self.operator, self.run, self.job, host)["minder_pid"]
            self._tell(
                "kill the minder of",
                host,
                self._signal(host, pid) if self._is_ours(host, pid) else False,
            )
        else:
            pid = task_status(self.operator, self.run, self.job, host, task)["supervisor_pid"]
            self._tell(
                "kill the supervisor of",
                task,
                self._signal(host, pid) if self._is_ours(host, pid) else False,
            )

    def _is_ours(self, host: str, pid: int | None) -> bool:
        """Return True if the pid belongs to the run.

        After a reboot, a pid in a file may belong to another process.
        """
        words = on_host(
            self.lab, host, f"tr '\\0' ' ' < /proc/{pid}/cmdline 2>/dev/null || true", root=True
        )
        return f"/runs/{self.run}/" in words

    def _let_it_run(self) -> None:
        """Wait until the tasks have printed more, but at most LET_S seconds."""
        before = self.followed.stat().st_size
        try:
            wait_for(lambda: self.followed.stat().st_size > before + LET_BYTES, LET_S, "more lines")
        except AssertionError:
            pass
        self._tell("let", "it run", self.followed.stat().st_size - before)

    def _freeze(self) -> None:
        task = self.chance.choice(self._living())
        pid = self._pid_of(task)
        if self._signal(self.tasks[task], pid, 19):
            self.frozen[task] = pid or 0
        self._tell("freeze", task, task in self.frozen)

    def _thaw(self) -> None:
        for task, pid in self.frozen.items():
            self._tell("thaw", task, self._signal(self.tasks[task], pid, 18))
        self.frozen.clear()

    def _cut(self) -> None:
        host = self.chance.choice(
            [host for host in self.lab.hosts if host not in self.off | self.cut]
        )
        self.lab.cut(host)
        self.cut.add(host)
        self._tell("cut", host)

    def _heal(self) -> None:
        host = self.chance.choice(sorted(self.cut))
        self.lab.heal(host)
        self.cut.discard(host)
        self._tell("heal", host)

    def _power_off(self) -> None:
        host = self.chance.choice(
            [host for host in self.lab.hosts if host not in self.off | self.cut]
        )
        self.lab.kill(host)
        self.off.add(host)
        self.frozen = {task: pid for task, pid in self.frozen.items() if self.tasks[task] != host}
        self._tell("power off", host)

    def _boot(self) -> None:
        host = self.chance.choice(sorted(self.off))
        self.lab.boot(host)
        self.off.discard(host)
        self._tell("boot", host)

    def _stop(self) -> None:
        who = self.chance.choice((self.operator, self.other))
        done = who.run("stop", self.run)
        # Only hosts with tasks count. In mode mirrored, the run has no task on n1.
        away = (self.off | self.cut) & set(self.tasks.values())
        self._tell("stop", self.run, done.returncode)
        assert done.returncode == (4 if away else 0) and "Traceback" not in done.stderr, done.stderr
        self.stopped = True

    def _second_launch(self) -> None:
        name = f"{self.run}-again-{self.chance.randrange(1000)}"
        done = self.other.run("launch", "--detach", "--name", name)
        self._tell("second launch", name, done.returncode)
        assert "Traceback" not in done.stderr, done.stderr
        if done.returncode == 0:
            assert self.operator.state(self.run) in FINAL, "two runs of one job are alive"
            self.other.run("stop", name, "--now", exit_code=0)
        else:
            assert done.returncode in (1, 3), done.stderr

    def _second_status(self) -> None:
        done = self.other.run("status", self.run)
        self._tell("status by another", self.run, done.returncode)
        assert done.returncode == 0, done.stderr

    def _tell(self, what: str, whom: str, result: object = "") -> None:
        self.said.append(f"{time.monotonic() - self.began:.0f} s {what} {whom} {result}".strip())

    def as_it_stands(self) -> str:
        """Return the run's status and its files on the hosts, as text that explains a failure."""
        said = [self.other.run("status", self.run).stdout]
        for host in self.lab.hosts:
            said.append(
                on_host(
                    self.lab,
                    host,
                    f"cd {host_folder(self.run, self.job, host)} && tail -n 40 state.json journal",
                    check=False,
                )
            )
            said.append(
                on_host(
                    self.lab,
                    host,
                    f"ps -eo pid,ppid,stat,args | grep -F {self.run} | grep -v grep",
                    check=False,
                )
            )
        return "\n".join(said)

    # --- checks at the end of a walk

    def settle(self) -> None:
        """Repair all faults and check that the run ends as the model predicts."""
        self._thaw()
        for host in sorted(self.cut):
            self.lab.heal(host)
        for host in sorted(self.off):
            self.lab.boot(host)
        self.off, self.cut = set(), set()
        self._tell("all", "is healed")
        state = wait_for(
            lambda: (seen := self.operator.state(self.run)) in FINAL and seen,
            ENDS_S,
            "the run has ended",
        )
        assert state in (STOPPED if self.stopped else ("succeeded",)), state
        self._tell("it has", state)
        self._nothing_is_left()
        self._everybody_agrees()
        self._every_line_once()
        # The sync succeeds only if all locks are free.
        self.operator.run("sync", exit_code=0)
        self._tell("all", "holds")

    def _nothing_is_left(self) -> None:
        seen: dict[str, Any] = {}

        def gone() -> bool:
            seen.clear()
            seen.update(find_remains(self.operator, self.run, self.job))
            return not seen

        try:
            wait_for(gone, 30, "nothing is left")
        except AssertionError as error:
            raise AssertionError(f"{error}: {json.dumps(seen, indent=1)}") from None

    def _everybody_agrees(self) -> None:
        one, two = (each.json("status", self.run) for each in (self.operator, self.other))
        assert one == two
        told = {
            host: host_state(self.operator, self.run, self.job, host)
            for host in set(self.tasks.values())
        }
        assert {state["phase"] for state in told.values()} == {"ended"}, told
        for row in one["tasks"]:
            assert row["state"] in ("ended", "lost") and row["outcome"], row

    def _every_line_once(self) -> None:
        """Check that the steps in a task's log increase within each attempt, and that a client that
        follows the log has received each line exactly once.
        """
        stored = _lines(self.operator.run("logs", self.run, "--output", "json", exit_code=0).stdout)
        for task in self.tasks:
            attempts: dict[int, list[int]] = {}
            for mine, attempt, line in stored:
                step = re.match(r"step (\d+)", line)
                if mine == task and step:
                    attempts.setdefault(attempt, []).append(int(step[1]))
            for attempt, steps in attempts.items():
                assert steps == list(range(1, len(steps) + 1)), (
                    f"{task}, attempt {attempt}: {steps}"
                )
        try:
            code = self.following.wait(120)
            messages = [
                line for line in self.followed.read_text().splitlines() if not line.startswith("{")
            ]
            assert code in (0, 4), f"the follower ends with {code}: {messages}"
        except subprocess.TimeoutExpired:
            raise AssertionError("the follower does not end") from None
        followed = _lines(self.followed.read_text())
        for task in self.tasks:
            assert [row for row in followed if row[0] == task] == [
                row for row in stored if row[0] == task
            ], task


def _lines(text: str) -> list[tuple[str, int, str]]:
    rows = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    return [(row["task"], row["attempt"], row["line"]) for row in rows]
