"""What fails between the first word of a launch and its commit: nothing runs anywhere, and the error says who and what next."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from commandline import Tfdeploy
from eventpipe import EventPipe
from jobs import write_job
from remains import NO_PORTS, assert_nothing_left

from tfdeploy.lab import Lab

pytestmark = pytest.mark.isolated
SOON_S = 60.0


@pytest.fixture
def operator(isolated_lab: Lab, tfdeploy: Callable[[Lab], Tfdeploy]) -> Tfdeploy:
    return tfdeploy(isolated_lab)


@pytest.fixture
def new_pipe(tmp_path: Path) -> Iterator[Callable[[], EventPipe]]:
    made: list[EventPipe] = []

    def make() -> EventPipe:
        made.append(EventPipe(tmp_path / f"events-{len(made)}"))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def pipe(new_pipe: Callable[[], EventPipe]) -> EventPipe:
    return new_pipe()


def ended(process: subprocess.Popen[str], within_s: float = SOON_S) -> tuple[int, str]:
    """(exit code, all that it said)."""
    said, _ = process.communicate(timeout=within_s)
    return process.returncode, said


def test_a_host_that_dies_between_prepare_and_start_leaves_nothing_running(
    new_lab: Callable[..., Lab], tfdeploy: Callable[[Lab], Tfdeploy], pipe: EventPipe
) -> None:
    eight = new_lab("isolated", 8)
    operator = tfdeploy(eight)
    write_job(operator, "eight", "quick.py", "--steps=100000")
    launching = operator.start("launch", "--name", "eight-1", *pipe.words)
    pipe.hold_at("step", step="prepare", state="done")
    eight.kill("n5")
    begun = time.monotonic()
    pipe.go_on()
    code, said = ended(launching)
    assert code == 4, said
    assert "n5" in said.partition("error:")[2], said
    assert_nothing_left(operator, "eight-1", "eight", within_s=SOON_S - (time.monotonic() - begun))
    eight.boot("n5")
    operator.run("launch", "--detach", "--name", "eight-2", exit_code=0)  # what the power cut left there is dead, and known to be
    for run in ("eight-2", "eight-1"):
        operator.run("stop", run, "--now", exit_code=0)
        assert_nothing_left(operator, run, "eight")


PHASES = ("lock", "probe", "plan", "sync", "prepare", "start", "commit")


@pytest.mark.parametrize("times", [1, 2], ids=["once", "twice"])
@pytest.mark.parametrize("phase", PHASES)
def test_ctrl_c_in_any_phase_leaves_nothing(operator: Tfdeploy, pipe: EventPipe, phase: str, times: int) -> None:
    write_job(operator, "interrupted", "quick.py", "--steps=100000")
    run = f"interrupted-{phase}-{times}"
    launching = operator.start("launch", "--name", run, *pipe.words)
    pipe.hold_at("step", step=phase, state="begin")
    interrupt(launching)
    if times == 2:
        if phase in ("start", "commit"):  # the second one comes into the rollback
            pipe.hold_at("step", step="rollback", state="begin")
        interrupt(launching)
    pipe.go_on()
    code, said = ended(launching, 20)
    assert code == 130 and "Traceback" not in said, said
    assert_nothing_left(operator, run, "interrupted")


def test_ctrl_c_while_the_tasks_come_up_leaves_nothing(operator: Tfdeploy, pipe: EventPipe) -> None:
    write_job(operator, "slow-start", "quick.py", "--steps=100000", ready={"after": "60s"}, flags="none")
    (operator.cwd / "quick.py").write_text("import time\nprint('not yet', flush=True)\ntime.sleep(1000)\n")
    launching = operator.start("launch", "--name", "slow-start-1", *pipe.words)
    pipe.hold_at("task", state="starting")
    pipe.go_on()
    interrupt(launching)
    code, said = ended(launching, 20)
    assert code == 130, said
    assert_nothing_left(operator, "slow-start-1", "slow-start")
    assert "not yet" in operator.run("logs", "slow-start-1", exit_code=0).stdout


def test_ctrl_c_after_commit_leaves_the_run_alone(operator: Tfdeploy, pipe: EventPipe) -> None:
    write_job(operator, "left", "quick.py", "--steps=100000")
    launching = operator.start("launch", "--wait", "--name", "left-1", *pipe.words)
    pipe.hold_at("line", task="worker:0")
    pipe.go_on()
    interrupt(launching)
    code, said = ended(launching, 20)
    assert code == 130 and "left-1" in said, said
    assert operator.state("left-1") == "running"
    operator.run("stop", "left-1", "--now", exit_code=0)
    assert_nothing_left(operator, "left-1", "left")


def interrupt(process: subprocess.Popen[str]) -> None:
    """Ctrl-C: to the whole foreground group, as a terminal does."""
    os.killpg(process.pid, signal.SIGINT)


def test_tfdeploy_killed_before_commit_leaves_nothing_a_minute_later(
    isolated_lab: Lab, tfdeploy: Callable[[Lab], Tfdeploy], new_pipe: Callable[[], EventPipe]
) -> None:
    """Three launches at once, killed after prepare, while the tasks come up, and before commit: one minute for all."""
    moments: dict[str, dict[str, str]] = {
        "prepared": {"kind": "step", "step": "prepare", "state": "done"},
        "starting": {"kind": "task", "state": "starting"},
        "started": {"kind": "step", "step": "commit", "state": "begin"},
    }
    killed: dict[str, Tfdeploy] = {}
    for name, moment in moments.items():
        operator, pipe = tfdeploy(isolated_lab), new_pipe()
        write_job(operator, name, "quick.py", "--steps=100000")
        launching = operator.start("launch", "--name", f"{name}-1", *pipe.words)
        pipe.hold_at(**moment)
        os.killpg(launching.pid, signal.SIGKILL)
        launching.wait()
        pipe.go_on()
        killed[name] = operator
    begun = time.monotonic()
    assert any(operator.marked(host, "started-1") for host in isolated_lab.hosts for operator in killed.values())
    for name, operator in killed.items():
        assert_nothing_left(operator, f"{name}-1", name, within_s=75 - (time.monotonic() - begun), ports=NO_PORTS)
    assert_nothing_left(operator, "started-1", "started")
    assert operator.json("status", "started-1")["state"] == "failed"
