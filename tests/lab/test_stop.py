"""Test `tfdeploy stop`: the whole run ends, whatever its program does to survive, and no other
process is affected.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable

import pytest

from support.faults.bystander import bystander
from support.faults.lines import variations
from support.lab.commandline import Tfdeploy, wait_for_end
from support.lab.host_commands import host_command
from support.lab.jobs import write_job
from support.lab.remains import assert_nothing_left
from support.lab.run_files import host_state
from support.stopwatch import Stopwatch
from support.waiting import wait_for
from tfdeploy.lab import Lab

pytestmark = pytest.mark.isolated


@pytest.fixture
def operator(few_hosts: Lab, tfdeploy: Callable[[Lab], Tfdeploy]) -> Tfdeploy:
    return tfdeploy(few_hosts)


def launch(operator: Tfdeploy, run: str, *args: str) -> None:
    operator.run("launch", "--detach", "--name", run, *args, exit_code=0)


def all_of_it_is_there(operator: Tfdeploy, run: str) -> dict[str, list[int]]:
    """Wait until stubborn.py has started all its processes on every host. Return {host: pids of
    these processes}, read from the output of stubborn.py.
    """

    def pids_by_task() -> dict[str, list[int]]:
        results: dict[str, list[int]] = {}
        for line in operator.run("logs", run, exit_code=0).stdout.splitlines():
            match = re.match(r"\S+?@(\w+) +\| pid (\d+) ", line)
            if match:
                results.setdefault(match[1], []).append(int(match[2]))
        return (
            results
            if results
            and all(len(pids) == 5 for pids in results.values())
            and len(results) == len(operator.lab.hosts)
            else {}
        )

    return wait_for(pids_by_task, 20, "every task has forked all it forks")


ALIVE = "for each; do grep -s '^State:' /proc/$each/status | grep -qv Z && echo $each; done; true"


def alive(lab: Lab, host: str, pids: list[int]) -> list[int]:
    command = host_command(lab, host, ["sh", "-c", ALIVE, "sh", *map(str, pids)])
    return [
        int(pid)
        for pid in subprocess.run(
            command, capture_output=True, text=True, check=True
        ).stdout.split()
    ]


@pytest.mark.fault("49 ignores TERM, forks, new session, reparents, no environment")
@pytest.mark.fault("52 another run and a stranger on the same host")
def test_a_stubborn_program_is_gone_and_its_neighbours_are_untouched(operator: Tfdeploy) -> None:
    """The program ignores SIGTERM, forks, double-forks, starts a new session and hides its
    environment.

    An unrelated process and another run on the same hosts must survive.
    """
    lab = operator.lab
    write_job(operator, "neighbour", "quick.py", "--steps=100000")
    launch(operator, "neighbour-1")
    write_job(operator, "stubborn", "stubborn.py", "--environ", stop={"grace": "60s"})
    with bystander(lab, "n2") as stranger:
        launch(operator, "stubborn-1")
        pids = all_of_it_is_there(operator, "stubborn-1")
        answer = operator.json("stop", "stubborn-1", "--grace", "1s")
        assert answer["ok"] and {row["host"] for row in answer["hosts"]} == set(lab.hosts)
        assert all(
            row == {"host": row["host"], "ok": True, "survivors": [], "error": None}
            for row in answer["hosts"]
        )
        assert {host: alive(lab, host, made) for host, made in pids.items()} == {
            host: [] for host in pids
        }
        assert stranger.poll() is None
    assert_nothing_left(operator, "stubborn-1", "stubborn", ports=ports_of(operator, "stubborn-1"))
    assert operator.state("stubborn-1") == "stopped"
    assert "itself" in operator.run("logs", "stubborn-1", exit_code=0).stdout
    assert operator.state("neighbour-1") == "running"
    assert all(len(operator.marked(host, "neighbour-1")) == 1 for host in lab.hosts)
    operator.run("stop", "neighbour-1", exit_code=0)
    assert_nothing_left(operator, "neighbour-1", "neighbour")


def ports_of(operator: Tfdeploy, run: str) -> tuple[int, int]:
    ports = [
        int(row["address"].rpartition(":")[2]) for row in operator.json("status", run)["tasks"]
    ]
    return min(ports), max(ports)


@pytest.mark.parametrize("patience", ["--grace=1s", "--now"])
def test_the_grace_that_is_given_counts(operator: Tfdeploy, patience: str) -> None:
    write_job(operator, "patience", "stubborn.py", stop={"grace": "60s"})
    run = "patience" + patience.replace("=", "-")
    launch(operator, run)
    watch = Stopwatch()
    operator.run("stop", run, patience, exit_code=0)
    assert watch.seconds < 30
    rows = operator.json("status", run)["tasks"]
    assert [row["outcome"] for row in rows] == ["stopped"] * 3 and {
        row["signal"] for row in rows
    } == {9}
    assert_nothing_left(operator, run, "patience")


@pytest.mark.fault("53 no process, port, lock, secret or temporary file; the logs stay")
def test_a_program_that_obeys_is_asked_and_not_killed(operator: Tfdeploy) -> None:
    write_job(operator, "obeys", "quick.py", "--steps=100000", stop={"grace": "60s"})
    launch(operator, "obeys-1")
    # Without the name of a run, `stop` stops the active run of this job.
    stderr = operator.run("stop", exit_code=0).stderr
    assert "no process of run obeys-1 is alive" in stderr
    rows = operator.json("status", "obeys-1")["tasks"]
    assert {(row["outcome"], row["signal"], row["reason"]) for row in rows} == {
        ("stopped", 15, "stopped by an operator")
    }
    assert_nothing_left(operator, "obeys-1", "obeys")
    assert "step 1" in operator.run("logs", "obeys-1", exit_code=0).stdout


@pytest.mark.fault("51 stop twice, of an ended run, of an unknown one")
def test_stop_again_of_an_ended_and_of_an_unknown_run(operator: Tfdeploy) -> None:
    write_job(operator, "again", "quick.py", "--steps=100000")
    launch(operator, "again-1")
    operator.run("stop", "again-1", exit_code=0)
    before = operator.json("status", "again-1")
    stderr = operator.run("stop", "again-1", exit_code=0).stderr
    assert "no process of run again-1 is alive; the run ended earlier: stopped" in stderr
    operator.run(
        "launch",
        "--wait",
        "--name",
        "again-2",
        "--",
        "python",
        "quick.py",
        "--steps=1",
        exit_code=0,
    )
    stderr = operator.run("stop", "again-2", exit_code=0).stderr
    assert re.search(r"^n\S+: had ended before$", stderr, re.M), stderr
    assert "no process of run again-2 is alive; the run ended earlier: succeeded" in stderr
    assert operator.state("again-2") == "succeeded" and operator.json("status", "again-1") == before
    stderr = operator.run("stop", "no-such-run", exit_code=2).stderr
    assert "no run 'no-such-run'" in stderr and "tfdeploy runs" in stderr
    operator.run("stop", "--json", "no-such-run", exit_code=2)
    several = operator.run("stop", "again", exit_code=2).stderr
    assert "again-1" in several and "again-2" in several
    assert_nothing_left(operator, "again-2", "again")


@pytest.mark.fault("51 two stops at once")
def test_two_stops_at_once(operator: Tfdeploy) -> None:
    write_job(operator, "twice", "stubborn.py", stop={"grace": "2s"})
    launch(operator, "twice-1")
    both = [operator.start("stop", "twice-1") for _ in range(2)]
    for stopping in both:
        code, output = wait_for_end(stopping)
        assert code == 0, output
    assert_nothing_left(operator, "twice-1", "twice")


@pytest.mark.fault("51 Ctrl-C in a stop")
def test_ctrl_c_leaves_a_stop_that_was_asked_for_to_the_hosts(operator: Tfdeploy) -> None:
    write_job(operator, "leave", "stubborn.py", stop={"grace": "4s"})
    launch(operator, "leave-1")
    stopping = operator.start("stop", "leave-1")
    hosts = operator.lab.hosts
    wait_for(
        lambda: any(
            host_state(operator, "leave-1", "leave", host)["stop_requested"] for host in hosts
        ),
        20,
        "it is heard",
    )
    os.killpg(stopping.pid, signal.SIGINT)
    code, output = wait_for_end(stopping, 20)
    assert code in (0, 130) and "Traceback" not in output, output
    assert_nothing_left(operator, "leave-1", "leave", within_s=20)


@pytest.mark.fault("50 a host cut off, a host without power")
def test_hosts_that_are_off_are_named_and_stopped_later(
    new_lab: Callable[..., Lab], tfdeploy: Callable[[Lab], Tfdeploy]
) -> None:
    lab = new_lab("isolated", 4)
    operator = tfdeploy(lab)
    write_job(operator, "off", "stubborn.py", stop={"grace": "1s"})
    launch(operator, "off-1")
    lab.cut("n3")
    lab.kill("n4")
    told = operator.start("stop", "off-1")
    answer = operator.json("stop", "off-1", exit_code=4)
    assert not answer["ok"]
    rows = {row["host"]: row for row in answer["hosts"]}
    assert [rows[host]["ok"] for host in ("n1", "n2", "n3", "n4")] == [True, True, False, False], (
        rows
    )
    assert rows["n3"]["error"] and rows["n4"]["error"]
    code, output = wait_for_end(told)
    assert (
        code == 4
        and "n3" in output
        and "n4" in output
        and "to finish the stop, type `tfdeploy stop off-1` again" in output
    ), output
    assert operator.marked("n1", "off-1") == operator.marked(
        "n2", "off-1"
    ) == [] and operator.marked("n3", "off-1")
    lab.heal("n3")
    lab.boot("n4")
    operator.run("stop", "off-1", exit_code=0)
    assert_nothing_left(operator, "off-1", "off")
    assert operator.state("off-1") == "stopped"
    assert "itself" in operator.run("logs", "off-1", exit_code=0).stdout


@pytest.mark.fault("54 local state lost, corrupt, a file, read-only")
@pytest.mark.parametrize(
    "broken", variations(["lost", "corrupt", "a file in its place", "unwritable"])
)
def test_stop_needs_no_local_state(operator: Tfdeploy, broken: str) -> None:
    state = operator.home / "state"
    write_job(operator, "forgetful", "quick.py", "--steps=100000")
    run = "forgetful-" + broken.replace(" ", "-")
    launch(operator, run)
    if broken == "corrupt":
        for path in state.rglob("*"):
            if path.is_file():
                path.write_bytes(b"\x00{not json")
    else:
        shutil.rmtree(state)
    if broken == "a file in its place":
        state.write_text("")
    # Not even root can write below /proc/sys.
    if broken == "unwritable":
        state.symlink_to("/proc/sys/nowhere")
    assert operator.json("runs")["runs"][0]["run"] == run
    assert operator.json("status")["state"] == "running"
    operator.run("stop", exit_code=0)
    assert_nothing_left(operator, run, "forgetful")
    operator.run("launch", "--wait", "--", "python", "quick.py", "--steps=1", exit_code=0)


@pytest.mark.fault("8 hosts gone from the inventory before the stop")
def test_a_changed_inventory_does_not_matter_to_a_run_that_is_known(operator: Tfdeploy) -> None:
    write_job(operator, "moved", "quick.py", "--steps=100000")
    launch(operator, "moved-1")
    text = operator.lab.inventory.read_text()
    fewer = operator.home / "fewer.yaml"
    fewer.write_text(
        "".join(line for line in text.splitlines(True) if "n3:" not in line).replace(", n3", "")
    )
    operator.run("stop", "moved-1", "-i", str(fewer), exit_code=0)
    assert_nothing_left(operator, "moved-1", "moved")
