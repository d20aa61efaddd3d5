"""Test launches during which tfdeploy ends, by Ctrl-C or by a kill. If it ends before it commits
the run, nothing of the run remains on any host.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable

import pytest

from support.lab.commandline import Tfdeploy, wait_for_end
from support.lab.event_pipe import EventPipe
from support.lab.hosts import on_host
from support.lab.jobs import write_job
from support.lab.remains import NO_PORTS, assert_nothing_left
from support.lab.run_files import task_folder
from support.stopwatch import Stopwatch
from support.waiting import wait_for
from tfdeploy.agent import wire
from tfdeploy.lab import Lab

pytestmark = pytest.mark.isolated


@pytest.fixture
def operator(pair: Lab, tfdeploy: Callable[[Lab], Tfdeploy]) -> Tfdeploy:
    return tfdeploy(pair)


PHASES = ("lock", "probe", "plan", "sync", "prepare", "start", "commit")


@pytest.mark.parametrize(
    "times",
    [
        pytest.param(1, id="once", marks=pytest.mark.fault("51 Ctrl-C in each phase of a launch")),
        pytest.param(
            2,
            id="twice",
            marks=[pytest.mark.fault("51 Ctrl-C twice in a launch"), pytest.mark.long],
        ),
    ],
)
@pytest.mark.parametrize("phase", PHASES)
def test_ctrl_c_in_any_phase_leaves_nothing(
    operator: Tfdeploy, pipe: EventPipe, phase: str, times: int
) -> None:
    write_job(operator, "interrupted", "quick.py", "--steps=100000")
    run = f"interrupted-{phase}-{times}"
    launching = operator.start("launch", "--name", run, *pipe.words)
    pipe.hold_at("step", step=phase, state="begin")
    interrupt(launching)
    if times == 2:
        # In these phases, the test sends the second Ctrl-C only after the rollback has begun.
        if phase in ("start", "commit"):
            pipe.hold_at("step", step="rollback", state="begin")
        interrupt(launching)
    pipe.go_on()
    code, output = wait_for_end(launching, 20)
    assert code == 130 and "Traceback" not in output, output
    assert_nothing_left(operator, run, "interrupted")


@pytest.mark.fault("61 a supervisor's time-out, a closed terminal in a launch")
@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGHUP, marks=pytest.mark.long)]
)
def test_a_signal_in_a_launch_leaves_nothing_and_is_what_it_ends_by(
    operator: Tfdeploy, pipe: EventPipe, number: int
) -> None:
    write_job(operator, "signalled", "quick.py", "--steps=100000")
    run = f"signalled-{number}"
    launching = operator.start("launch", "--name", run, *pipe.words)
    pipe.hold_at("step", step="commit", state="begin")
    os.killpg(launching.pid, number)
    pipe.go_on()
    code, output = wait_for_end(launching, 20)
    assert code == -number and "Traceback" not in output, output
    assert_nothing_left(operator, run, "signalled")


@pytest.mark.long
@pytest.mark.fault("51 Ctrl-C while the tasks come up")
def test_ctrl_c_while_the_tasks_come_up_leaves_nothing(operator: Tfdeploy, pipe: EventPipe) -> None:
    write_job(
        operator, "slow-start", "quick.py", "--steps=100000", ready={"after": "60s"}, flags="none"
    )
    (operator.cwd / "quick.py").write_text(
        "import time\nprint('not yet', flush=True)\ntime.sleep(1000)\n"
    )
    launching = operator.start("launch", "--name", "slow-start-1", *pipe.words)
    pipe.hold_at("task", state="starting")
    pipe.go_on()
    log = f"{task_folder('slow-start-1', 'slow-start', 'n2', 'worker:0')}/out.log"
    wait_for(
        lambda: "not yet" in on_host(operator.lab, "n2", f"cat {log}", check=False), 20, "it prints"
    )
    interrupt(launching)
    code, output = wait_for_end(launching, 20)
    assert code == 130, output
    assert_nothing_left(operator, "slow-start-1", "slow-start")
    assert "not yet" in operator.run("logs", "slow-start-1", exit_code=0).stdout


@pytest.mark.fault("51 Ctrl-C in the view of a run")
def test_ctrl_c_after_commit_leaves_the_run_alone(operator: Tfdeploy, pipe: EventPipe) -> None:
    write_job(operator, "ended", "quick.py", "--steps=100000")
    launching = operator.start("launch", "--wait", "--name", "left-1", *pipe.words)
    pipe.hold_at("line", task="worker:0")
    pipe.go_on()
    interrupt(launching)
    code, output = wait_for_end(launching, 20)
    assert code == 130 and "left-1" in output, output
    assert operator.state("left-1") == "running"
    operator.run("stop", "left-1", "--now", exit_code=0)
    assert_nothing_left(operator, "left-1", "ended")


def interrupt(process: subprocess.Popen[str]) -> None:
    """Send Ctrl-C to the whole foreground group, as a terminal does."""
    os.killpg(process.pid, signal.SIGINT)


HASTY_S = 15.0
HASTY = f"""import sys
from tfdeploy.agent.record import replace
from tfdeploy.cli.main import main
from tfdeploy.planning import host_parts
whole = host_parts._host_part
host_parts._host_part = lambda *plan: replace(
    whole(*plan), start_within_s={HASTY_S}, commit_within_s={HASTY_S}
)
sys.exit(main())
"""


@pytest.mark.fault("35 tfdeploy killed in the middle of a launch")
def test_tfdeploy_killed_before_commit_leaves_nothing_a_minute_later(
    pair: Lab, tfdeploy: Callable[[Lab], Tfdeploy], new_pipe: Callable[[], EventPipe]
) -> None:
    """Three launches run at the same time. One is killed after prepare, one while the tasks start,
    and one before the commit. So one wait is enough for all three.
    """
    assert wire.HostPart.start_within_s == wire.HostPart.commit_within_s == 60.0
    moments: dict[str, dict[str, str]] = {
        "prepared": {"kind": "step", "step": "prepare", "state": "done"},
        "starting": {"kind": "task", "state": "starting"},
        "started": {"kind": "step", "step": "commit", "state": "begin"},
    }
    killed: dict[str, Tfdeploy] = {}
    for name, moment in moments.items():
        operator, pipe = tfdeploy(pair), new_pipe()
        operator.program = ["-c", HASTY]
        write_job(operator, name, "quick.py", "--steps=100000")
        launching = operator.start("launch", "--name", f"{name}-1", *pipe.words)
        pipe.hold_at(**moment)
        os.killpg(launching.pid, signal.SIGKILL)
        launching.wait()
        pipe.go_on()
        killed[name] = operator
    watch = Stopwatch()
    assert any(
        operator.marked(host, "started-1") for host in pair.hosts for operator in killed.values()
    )
    for name, operator in killed.items():
        assert_nothing_left(
            operator, f"{name}-1", name, within_s=HASTY_S + 15 - watch.seconds, ports=NO_PORTS
        )
    assert_nothing_left(operator, "started-1", "started")
    assert operator.json("status", "started-1")["state"] == "failed"
