"""A control machine that slept in the middle of its launch wakes up when another operator's run is there: it disturbs nothing."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from commandline import Tfdeploy
from conditions import wait_for
from eventpipe import EventPipe
from jobs import write_job
from remains import assert_nothing_left

from tfdeploy.lab import Lab

pytestmark = pytest.mark.isolated


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[EventPipe]:
    made = EventPipe(tmp_path / "events")
    yield made
    made.close()


@pytest.mark.fault("28 an old control machine wakes up after another's launch")
@pytest.mark.parametrize("step", [pytest.param("start", marks=pytest.mark.long), "commit"])
def test_who_slept_in_a_launch_cannot_undo_a_newer_run(
    isolated_lab: Lab, tfdeploy: Callable[[Lab], Tfdeploy], pipe: EventPipe, step: str
) -> None:
    old, new = tfdeploy(isolated_lab), tfdeploy(isolated_lab)
    for operator in (old, new):
        write_job(operator, "twice", "quick.py", "--steps=100000")
    sleeper = old.start("launch", "--detach", "--name", f"old-{step}", *pipe.words)
    pipe.hold_at("step", step=step, state="begin")
    os.killpg(sleeper.pid, signal.SIGSTOP)
    pipe.go_on()
    refused = new.run("launch", "--detach", "--name", f"new-{step}", exit_code=3)
    who = r"job twice is locked by the launch of \S+@\S+ \(pid \d+\) since \d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ"
    assert re.search(who, refused.stderr), refused.stderr
    new.run("stop", f"old-{step}", exit_code=0)

    def launched() -> bool:  # its sessions end when nothing has been heard of it for 30 s
        return new.run("launch", "--detach", "--name", f"new-{step}").returncode == 0

    wait_for(launched, 90, "the newer launch has its turn")
    before = {row["task"]: (row["pid"], row["state"]) for row in new.json("status", f"new-{step}")["tasks"]}
    os.killpg(sleeper.pid, signal.SIGCONT)
    assert sleeper.wait(timeout=120) != 0, "it must not believe that its run is up"
    after = {row["task"]: (row["pid"], row["state"]) for row in new.json("status", f"new-{step}")["tasks"]}
    assert after == before and {state for _, state in after.values()} == {"running"}
    assert new.state(f"old-{step}") == "stopped"
    again = old.run("launch", "--detach", exit_code=3)
    assert f"new-{step}" in again.stderr
    new.run("stop", f"new-{step}", exit_code=0)
    assert_nothing_left(new, f"new-{step}", "twice")
    assert_nothing_left(new, f"old-{step}", "twice")
