"""Test hosts whose clocks jump or are ahead. Durations stay correct, and the task that died first
is still reported as the cause.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime

import pytest

from support.faults.tampered import tampered_agent
from support.lab.commandline import Tfdeploy
from support.lab.hosts import on_host
from support.lab.jobs import open_gate, write_job
from support.lab.remains import assert_nothing_left
from support.lab.run_files import host_state, kill, task_status
from support.waiting import wait_for
from tfdeploy import agent
from tfdeploy.lab import Lab

pytestmark = pytest.mark.isolated
SOON_S = 20.0


@pytest.fixture
def operator(hurt: Lab, tfdeploy: Callable[[Lab], Tfdeploy]) -> Tfdeploy:
    return tfdeploy(hurt)


JUMPS = """
import os as _os, time as _time
_true_time = _time.time
def _jumping_time():
    try:
        return _true_time() + float(open("/tmp/clock-jump").read())
    except (OSError, ValueError):
        return _true_time()
_time.time = _jumping_time
"""


@contextmanager
def jumping_clocks(operator: Tfdeploy) -> Iterator[Callable[..., None]]:
    """Return jump(seconds, *hosts), which shifts the clock of the agent's processes on these hosts,
    or on all hosts.
    """
    hosts = operator.lab.hosts

    def jump(seconds: int, *there: str) -> None:
        for host in there or hosts:
            on_host(
                operator.lab,
                host,
                f"echo {seconds} > /tmp/clock-jump.new && mv /tmp/clock-jump.new /tmp/clock-jump",
            )

    with ExitStack() as tampered:
        for host in hosts:
            tampered.callback(on_host, operator.lab, host, "rm -f /tmp/clock-jump")
            tampered.enter_context(tampered_agent(operator.lab, host, {agent: JUMPS}))
        yield jump


@pytest.mark.fault("43 clocks that jump a day ahead and a day back")
def test_a_clock_that_jumps_ends_nothing_early_and_nothing_late(operator: Tfdeploy) -> None:
    write_job(operator, "jumps", "quick.py", "--steps=60", "--gate=40", finish={"grace": "5s"})
    day = 24 * 3600
    began = time.monotonic()
    with jumping_clocks(operator) as jump:
        operator.run("launch", "--detach", "--name", "jumps-1", exit_code=0)
        for seconds in (day, -day, 0):
            jump(seconds)
            before = host_state(operator, "jumps-1", "jumps", "n1")["phase"]
            assert before == "committed"
        jump(-day)
        open_gate(operator, "jumps-1", "jumps")
        operator.wait_until("succeeded", "jumps-1")
        jump(0)
    tasks = [
        task_status(operator, "jumps-1", "jumps", host, task)
        for host, task in (("n2", "worker:0"), ("n3", "worker:1"))
    ]
    assert all(
        task["outcome"] == "succeeded" and 0 < task["lived_s"] < time.monotonic() - began
        for task in tasks
    ), tasks
    assert_nothing_left(operator, "jumps-1", "jumps")


def test_lines_of_a_host_whose_clock_is_ahead_have_the_time_of_the_others(
    operator: Tfdeploy,
) -> None:
    write_job(operator, "merged", "talk.py", "--lines=5")
    with jumping_clocks(operator) as jump:
        jump(30, "n2")
        operator.run("launch", "--wait", "--name", "merged-1", exit_code=0)
        stdout = operator.run("logs", "merged-1", "--json", exit_code=0).stdout
    rows = [json.loads(line) for line in stdout.splitlines()]
    assert rows == sorted(rows, key=lambda row: str(row["time"])) and len(rows) == 15
    times = [datetime.fromisoformat(row["time"].replace("Z", "+00:00")).timestamp() for row in rows]
    # A clock that is 30 s ahead would show. On a busy machine, the tasks start one after the other.
    assert max(times) - min(times) < 25, rows


@pytest.mark.fault("43 a clock three seconds ahead names no wrong cause")
def test_what_died_first_is_the_cause_though_its_host_s_clock_is_ahead(operator: Tfdeploy) -> None:
    write_job(operator, "skewed", "quick.py", "--steps=100000", restart={"max": 0})
    with jumping_clocks(operator) as jump:
        jump(3, "n2")
        operator.run("launch", "--detach", "--name", "skewed-1", exit_code=0)
        minders = {
            host: host_state(operator, "skewed-1", "skewed", host)["minder_pid"]
            for host in ("n2", "n3")
        }
        for host, minder in minders.items():
            # The minder (the process that looks after the run on the host) is paused. Otherwise it
            # would stop the second task when the first task dies.
            kill(operator, host, minder, number=signal.SIGSTOP)
        for host, task in (("n2", "worker:0"), ("n3", "worker:1")):
            kill(operator, host, task_status(operator, "skewed-1", "skewed", host, task)["pid"])

            def ended(host: str = host, task: str = task) -> bool:
                return task_status(operator, "skewed-1", "skewed", host, task)["state"] == "ended"

            wait_for(ended, SOON_S, "its end is written down")
        for host, minder in minders.items():
            kill(operator, host, minder, number=signal.SIGCONT)
        operator.wait_until("failed", "skewed-1", timeout_s=SOON_S)
    assert "cause: worker:0 on n2 " in operator.run("status", "skewed-1", exit_code=0).stdout
    tasks = {task["task"]: task for task in operator.json("status", "skewed-1")["tasks"]}
    assert tasks["worker:1"]["reason"] == "after worker:0 died"
    ended = [tasks[task]["ended"].rstrip("Z") for task in ("worker:0", "worker:1")]
    assert ended[0] < ended[1], tasks
    assert_nothing_left(operator, "skewed-1", "skewed")
