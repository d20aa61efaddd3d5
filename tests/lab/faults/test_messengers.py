"""Test a host that is cut off when its run ends. Once the host is connected again, the other hosts
of the run inform it, without a client.

After that, nothing of the run remains on any host.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from support.lab.commandline import Tfdeploy
from support.lab.host_commands import host_command
from support.lab.jobs import open_gate, write_job
from support.lab.remains import assert_nothing_left, find_remains
from support.waiting import wait_for
from tfdeploy.lab import Lab

pytestmark = [pytest.mark.isolated, pytest.mark.long]
AWAY = "n3"
MINDER = r"agent \d+: .*minder|port |held .*minder.lock"


@pytest.fixture
def operator(isolated_lab: Lab, tfdeploy: Callable[[Lab], Tfdeploy]) -> Any:
    yield tfdeploy(isolated_lab)
    isolated_lab.boot(AWAY)
    isolated_lab.heal(AWAY)


def launch(operator: Tfdeploy, run: str, *flags: str) -> None:
    write_job(operator, run, "quick.py", *flags, finish={"grace": "300ms"}, stop={"grace": "1s"})
    operator.run("launch", "--detach", "--name", run, exit_code=0)
    rows = operator.json("status", run)["tasks"]
    assert {row["state"] for row in rows} == {"running"} and {row["host"] for row in rows} == set(
        operator.lab.hosts
    )


def messengers(operator: Tfdeploy, run: str) -> list[str]:
    """Return the hosts, without AWAY, on which only the minder (the process that looks after the
    run on a host), its port and its lock remain.

    Such a host has ended its tasks, and waits until it can inform the host AWAY.
    """
    left = find_remains(operator, run, run)
    only = [
        host for host, remaining in left.items() if all(re.match(MINDER, one) for one in remaining)
    ]
    return [host for host in only if host != AWAY]


@pytest.mark.fault("50 a stop meets a host that is cut off, and nobody asks again")
def test_a_stop_reaches_a_host_that_was_away(operator: Tfdeploy) -> None:
    launch(operator, "away-stop", "--steps=100000")
    operator.lab.cut(AWAY)
    done = operator.run("stop", "away-stop", exit_code=4)
    assert (
        "if n3 can be reached again within a day, n[1-2,4] will stop the run there" in done.stderr
    )
    assert messengers(operator, "away-stop") == ["n1", "n2", "n4"]
    # The task on n3 continues, because no host can tell n3 that the run is stopped.
    assert operator.marked(AWAY, "away-stop")
    # The minders that wait for n3 have survived the stop, but `stop` does not report them.
    again = operator.run("stop", "away-stop", exit_code=4)
    assert "survive" not in again.stderr and messengers(operator, "away-stop") == ["n1", "n2", "n4"]
    (known,) = (
        row for row in operator.json("runs", exit_code=4)["runs"] if row["run"] == "away-stop"
    )
    assert (known["state"], known["live"]) == ("stopped", False)
    operator.lab.heal(AWAY)
    wait_for(lambda: not operator.marked(AWAY, "away-stop"), 60, "its task ends by itself")
    assert_nothing_left(operator, "away-stop", "away-stop", within_s=60)
    row = next(row for row in operator.json("status", "away-stop")["tasks"] if row["host"] == AWAY)
    assert (row["outcome"], row["reason"]) == ("stopped", "stopped by an operator")


@pytest.mark.fault("35 a run ends while a host is cut off")
@pytest.mark.parametrize(
    ("flags", "state"),
    [(("--steps=100",), "succeeded"), (("--steps=100", "--failat=90"), "failed")],
)
def test_the_end_of_a_run_reaches_a_host_that_was_away(
    operator: Tfdeploy, flags: tuple[str, ...], state: str
) -> None:
    run = f"away-{state}"
    launch(operator, run, *flags, "--gate=20")
    operator.lab.cut(AWAY)
    open_gate(operator, run, run, "n1", "n2", "n4")
    operator.wait_until(state, run, timeout_s=90)
    wait_for(lambda: messengers(operator, run) == ["n1", "n2", "n4"], 30, "the others wait for it")
    assert operator.marked(AWAY, run)
    operator.lab.heal(AWAY)
    wait_for(lambda: not operator.marked(AWAY, run), 60, "its task ends by itself")
    assert_nothing_left(operator, run, run, within_s=60)
    assert operator.state(run) == state


@pytest.mark.fault("50 a host is off at the stop and comes back rebooted")
def test_no_messenger_waits_for_a_host_that_was_rebooted(operator: Tfdeploy) -> None:
    launch(operator, "away-off", "--steps=100000")
    operator.lab.kill(AWAY)
    operator.run("stop", "away-off", exit_code=4)
    assert messengers(operator, "away-off") == ["n1", "n2", "n4"]
    operator.lab.boot(AWAY)
    wait_for(lambda: not messengers(operator, "away-off"), 60, "the messengers have gone")
    operator.run("stop", "away-off", exit_code=0)
    assert_nothing_left(operator, "away-off", "away-off")


def test_a_new_run_of_the_job_starts_beside_the_messengers(operator: Tfdeploy) -> None:
    launch(operator, "beside", "--steps=100000")
    operator.lab.cut(AWAY)
    operator.run("stop", "beside", exit_code=4)
    done = operator.run("launch", "--detach", "--name", "beside-2", "--exclude", AWAY, exit_code=0)
    assert "beside-2" in done.stdout
    operator.run("stop", "beside-2", exit_code=0)
    operator.lab.heal(AWAY)
    assert_nothing_left(operator, "beside", "beside", within_s=60)
    subprocess.run(host_command(operator.lab, AWAY, ["true"]), check=True)
