"""Test a control machine that sleeps during a launch, and wakes up when another operator's run is
active. The old launch must not disturb the new run.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from support.lab.commandline import Tfdeploy
from support.lab.event_pipe import EventPipe
from support.lab.hosts import on_host
from support.lab.jobs import write_job
from support.lab.remains import assert_nothing_left
from support.waiting import wait_for
from tfdeploy.lab import Lab

pytestmark = pytest.mark.isolated


STEPS = ("start", "commit")


@dataclass
class Nap:
    """Two launches of the same job. The first is paused before the step `step`, as if its machine
    slept. Another operator makes the second one in the meantime."""

    step: str
    old: Tfdeploy
    new: Tfdeploy
    pipe: EventPipe
    sleeper: subprocess.Popen[str] | None = None

    @property
    def job(self) -> str:
        return f"twice-{self.step}"

    def begin(self) -> None:
        for operator in (self.old, self.new):
            write_job(operator, self.job, "quick.py", "--steps=100000")
        self.sleeper = self.old.start(
            "launch", "--detach", "--name", f"old-{self.step}", *self.pipe.words
        )
        self.pipe.hold_at("step", step=self.step, state="begin")
        os.killpg(self.sleeper.pid, signal.SIGSTOP)
        self.pipe.go_on()
        refused = self.new.run("launch", "--detach", "--name", f"new-{self.step}", exit_code=3)
        who = (
            rf"job {self.job} is locked by the launch of \S+@\S+ \(pid \d+\) since "
            rf"\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\dZ"
        )
        assert re.search(who, refused.stderr), refused.stderr
        self.new.run("stop", f"old-{self.step}", exit_code=0)

    def launch_again(self) -> None:
        # The old launch's locks end with its sessions: hosts end a session after 30 s without a
        # message from the client.
        def unlocked() -> bool:
            held = (
                f"for each in ~/tfdeploy/{self.job}/locks/*.lock; do [ ! -e $each ] || flock -n "
                "$each true || echo held; done"
            )
            return not any(on_host(self.new.lab, host, held) for host in self.new.lab.hosts)

        wait_for(unlocked, 90, "the sessions of the sleeper have ended")
        self.new.run("launch", "--detach", "--name", f"new-{self.step}", exit_code=0)

    def tasks(self) -> dict[str, tuple[int, str]]:
        return {
            row["task"]: (row["pid"], row["state"])
            for row in self.new.json("status", f"new-{self.step}")["tasks"]
        }

    def wake(self) -> None:
        assert self.sleeper is not None
        before = self.tasks()
        os.killpg(self.sleeper.pid, signal.SIGCONT)
        assert self.sleeper.wait(timeout=120) != 0, "it must not believe that its run is up"
        after = self.tasks()
        assert after == before and {state for _, state in after.values()} == {"running"}
        assert self.new.state(f"old-{self.step}") == "stopped"
        again = self.old.run("launch", "--detach", exit_code=3)
        assert f"new-{self.step}" in again.stderr
        self.new.run("stop", f"new-{self.step}", exit_code=0)


@pytest.mark.long
@pytest.mark.fault("28 an old control machine wakes up after another's launch")
def test_who_slept_in_a_launch_cannot_undo_a_newer_run(
    few_hosts: Lab, tfdeploy: Callable[[Lab], Tfdeploy], new_pipe: Callable[[], EventPipe]
) -> None:
    """One launch is paused at each step in STEPS, all at the same time. So the test waits only once
    for the hosts to end the sessions of paused launches.
    """
    naps = [
        Nap(step=step, old=tfdeploy(few_hosts), new=tfdeploy(few_hosts), pipe=new_pipe())
        for step in STEPS
    ]
    for nap in naps:
        nap.begin()
    for nap in naps:
        nap.launch_again()
    for nap in naps:
        nap.wake()
    for nap in naps:
        for run in (f"new-{nap.step}", f"old-{nap.step}"):
            assert_nothing_left(nap.new, run, nap.job)
