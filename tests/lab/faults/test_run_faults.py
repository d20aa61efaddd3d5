"""Test faults on the hosts of a run: helper processes that are killed, pids that the kernel uses
again, and full disks and memory.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.faults.strangers import strangers
from support.lab.commandline import Tfdeploy
from support.lab.host_commands import host_command
from support.lab.hosts import host_changed_by_scripts, on_host
from support.lab.jobs import open_gate, write_job
from support.lab.remains import assert_nothing_left
from support.lab.run_files import host_state, kill, list_alive, task_status
from support.waiting import wait_for
from tfdeploy.lab import Lab
from tfdeploy.lab.isolated import UID

pytestmark = pytest.mark.isolated
SOON_S = 20.0
# With these settings, the run ends when the first task dies.
ONCE = {"restart": {"max": 0}}


@pytest.fixture
def operator(hurt: Lab, tfdeploy: Callable[[Lab], Tfdeploy]) -> Tfdeploy:
    return tfdeploy(hurt)


def launch(operator: Tfdeploy, run: str) -> None:
    operator.run("launch", "--detach", "--name", run, exit_code=0)


def write_program(operator: Tfdeploy, name: str, text: str, **keys: object) -> None:
    """Write a job whose workers run the program `text`, and whose ps only waits."""
    write_job(operator, name, "quick.py", flags="classic", **keys)
    waits = "import signal, sys\nif '--job_name=ps' in sys.argv:\n    signal.pause()\n"
    (operator.cwd / "quick.py").write_text(waits + text)


# --- helper processes are killed


@pytest.mark.fault("42 the supervisor is killed: its task goes too, and that is said")
def test_a_task_does_not_outlive_its_supervisor_unseen(operator: Tfdeploy) -> None:
    write_job(operator, "orphaned", "quick.py", "--steps=100000", **ONCE)
    launch(operator, "orphaned-1")
    task = task_status(operator, "orphaned-1", "orphaned", "n2", "worker:0")
    kill(operator, "n2", task["supervisor_pid"])
    wait_for(lambda: not list_alive(operator, "n2", task["pid"]), SOON_S, "the task has gone")
    operator.wait_until("failed", "orphaned-1", timeout_s=SOON_S)
    assert_nothing_left(operator, "orphaned-1", "orphaned")
    stdout = operator.run("status", "orphaned-1", exit_code=0).stdout
    assert "worker:0 on n2" in stdout and "its supervisor was killed" in stdout, stdout


@pytest.mark.fault("42 every minder is killed: the run goes on and ends well")
def test_a_run_whose_minders_are_killed_ends_well(operator: Tfdeploy) -> None:
    write_job(operator, "unminded", "quick.py", "--steps=60", "--gate=20")
    launch(operator, "unminded-1")
    for host in operator.lab.hosts:
        kill(operator, host, host_state(operator, "unminded-1", "unminded", host)["minder_pid"])
    open_gate(operator, "unminded-1", "unminded")
    operator.wait_until("succeeded", "unminded-1")
    assert {row["attempt"] for row in operator.json("status", "unminded-1")["tasks"]} == {1}
    assert_nothing_left(operator, "unminded-1", "unminded")


@pytest.mark.fault("41 strangers with the pids of task, supervisor and minder")
def test_strangers_that_have_the_pids_of_a_run_are_not_signalled(operator: Tfdeploy) -> None:
    write_job(operator, "reused", "quick.py", "--steps=100000", **ONCE)
    launch(operator, "reused-1")
    task = task_status(operator, "reused-1", "reused", "n2", "worker:0")
    pids = [
        task["pid"],
        task["supervisor_pid"],
        host_state(operator, "reused-1", "reused", "n2")["minder_pid"],
    ]
    kill(operator, "n2", *pids, check=False)
    wait_for(lambda: not list_alive(operator, "n2", *pids), SOON_S, "all of it is dead on n2")
    with strangers(operator.lab, "n2", pids) as foreign_processes:
        assert list_alive(operator, "n2", *pids) == pids
        operator.run("status", "reused-1", exit_code=0)
        operator.run("stop", "reused-1", "--now", exit_code=0)
        assert_nothing_left(operator, "reused-1", "reused")
        assert foreign_processes.untouched()


# --- disk and memory

LOUD = """import os, sys, time
block = b"x" * 65535 + b"\\n"
step = 0
while not os.path.exists("end"):
    step += 1
    os.write(1, block)
    os.write(1, b"step %d\\n" % step)
    time.sleep(0.01)
os.write(1, b"last step %d\\n" % step)
"""


@pytest.mark.fault("44 the disk fills up while training writes its log")
def test_a_disk_that_is_full_stops_no_training_and_what_was_lost_is_said(
    operator: Tfdeploy,
) -> None:
    write_program(operator, "disk", LOUD, finish={"grace": "1s"})
    folder = "/home/lab/tfdeploy"
    on_host(operator.lab, "n2", f"mkdir -p {folder}")
    with host_changed_by_scripts(
        operator.lab,
        "n2",
        f"mount -t tmpfs -o size=96m,uid={UID},mode=700 none {folder}",
        f"umount --lazy {folder}",
    ):
        launch(operator, "disk-1")
        steal = f"head -c 200m /dev/zero > {folder}/theirs"
        on_host(operator.lab, "n2", steal, check=False)

        def lost() -> bool:
            stdout = operator.run("status", "disk-1", exit_code=0).stdout
            return (
                "missing from the log of worker:0: " in stdout
                and "because n2's disk was full" in stdout
            )

        def size() -> str:
            return on_host(
                operator.lab,
                "n2",
                f"stat -c %s {folder}/disk/runs/disk-1/hosts/n2/tasks/worker-0/out.log",
            )

        wait_for(
            lambda: (
                on_host(operator.lab, "n2", f"df --output=avail {folder} | tail -n 1").strip()
                == "0"
            ),
            SOON_S,
            "full",
        )
        full = size()
        assert operator.state("disk-1") == "running"
        on_host(operator.lab, "n2", f"sleep 0.5; rm {folder}/theirs")
        wait_for(lambda: size() != full, SOON_S, "the log grows again")
        wait_for(lost, SOON_S, "status says what was lost")
        cwd = f"{folder}/disk/runs/disk-1/cwd"
        for host in ("n2", "n3"):
            on_host(operator.lab, host, f"touch {cwd}/end")
        operator.wait_until("succeeded", "disk-1")
        assert lost()
        assert (
            "last step"
            in operator.run("logs", "disk-1", "--task", "worker:0", "-n", "1", exit_code=0).stdout
        )
        assert_nothing_left(operator, "disk-1", "disk")


GREEDY = """import time
print("before", flush=True)
time.sleep(1)
held = []
while True:
    held.append(bytearray(b"x" * (8 << 20)))
"""
GROUPS = Path("/sys/fs/cgroup/memory")
MOUNT = (
    "mount -t tmpfs none /sys/fs/cgroup && mkdir /sys/fs/cgroup/memory && mount -t cgroup -o "
    "memory none /sys/fs/cgroup/memory"
)


@pytest.fixture
def little_memory(hurt: Lab) -> Iterator[str]:
    """Return a lab in which the processes of one host share 256 MB of memory."""
    if not (GROUPS / "memory.limit_in_bytes").exists():
        pytest.skip("no memory control groups (v1) on this machine")
    group = GROUPS / f"tfdeploy-test-{os.getpid()}"
    group.mkdir()
    try:
        (group / "memory.limit_in_bytes").write_text(str(256 << 20))
        on_host(hurt, "n3", MOUNT, root=True)
        first = next(int(str(row["pid"])) for row in hurt.status() if row["host"] == "n3")
        sshd = [
            int(pid) for pid in Path(f"/proc/{first}/task/{first}/children").read_text().split()
        ]
        for pid in (first, *sshd):
            (group / "cgroup.procs").write_text(str(pid))
        yield "n3"
    finally:
        hurt.kill("n3")
        wait_for(
            lambda: not (group / "cgroup.procs").read_text(), SOON_S, "nothing is left in the group"
        )
        group.rmdir()
        hurt.boot("n3")


@pytest.mark.fault("38 out of memory, in those words")
def test_a_task_that_the_kernel_kills_for_want_of_memory_says_so(
    operator: Tfdeploy, little_memory: str
) -> None:
    write_program(operator, "greedy", GREEDY, **ONCE)
    text = (operator.cwd / "quick.py").read_text()
    (operator.cwd / "quick.py").write_text(
        text.replace("held = []", "held = []\nif '--task_index=0' in sys.argv: time.sleep(1000)")
    )
    operator.run("launch", "--wait", "--name", "greedy-1", exit_code=1)
    row = next(
        row for row in operator.json("status", "greedy-1")["tasks"] if row["task"] == "worker:1"
    )
    assert (row["host"], row["outcome"], row["signal"]) == (little_memory, "killed", 9)
    stdout = operator.run("status", "greedy-1", exit_code=0).stdout
    assert "out of memory" in row["reason"] and "out of memory" in stdout, stdout
    assert_nothing_left(operator, "greedy-1", "greedy")


# --- a power cut


@pytest.mark.fault(
    "34 a power cut: the run is known to be dead, and strangers with its pids are let be"
)
def test_after_a_power_cut_the_run_is_lost_and_its_pids_are_nobody_s(operator: Tfdeploy) -> None:
    lab = operator.lab
    write_job(operator, "dark", "quick.py", "--steps=100000", **ONCE)
    launch(operator, "dark-1")
    pids = task_status(operator, "dark-1", "dark", "n2", "worker:0")["pid"]
    for host in lab.hosts:
        lab.kill(host)
    for host in lab.hosts:
        lab.boot(host)
    with strangers(lab, "n2", [pids]) as foreign_processes:
        answer = operator.json("status", "dark-1")
        assert answer["state"] == "lost" and {row["outcome"] for row in answer["tasks"]} == {
            "lost"
        }, answer
        assert {row["reason"] for row in answer["tasks"]} == {"host rebooted"}, answer
        operator.run("stop", "dark-1", exit_code=0)
        operator.run(
            "launch",
            "--wait",
            "--name",
            "dark-2",
            "--",
            "python",
            "quick.py",
            "--steps=2",
            exit_code=0,
        )
        assert foreign_processes.untouched()
    assert_nothing_left(operator, "dark-2", "dark")
    assert_nothing_left(operator, "dark-1", "dark")


# --- processes that cannot be ended

ROOTED = """import os, time
code = "import os, time; os.setuid(0); print('root', os.getpid(), flush=True); time.sleep(1000)"
if os.fork() == 0:
    os.execv("/usr/local/bin/as-root", ["as-root", "-c", code])
time.sleep(1000)
"""
AS_ROOT = (
    "cp $(readlink -f /usr/bin/python3) /usr/local/bin/as-root && chmod 4755 /usr/local/bin/as-root"
)


@pytest.mark.needs("setuid programs")
@pytest.mark.fault("49 a process that cannot be killed is reported as alive: exit 5")
def test_a_survivor_is_named_and_the_exit_code_is_5(operator: Tfdeploy) -> None:
    write_program(operator, "rooted", ROOTED, stop={"grace": "1s"})
    with (
        host_changed_by_scripts(operator.lab, "n2", AS_ROOT, "rm /usr/local/bin/as-root"),
        host_changed_by_scripts(
            operator.lab,
            "n3",
            "ln -s $(command -v true) /usr/local/bin/as-root",
            "rm /usr/local/bin/as-root",
        ),
    ):
        launch(operator, "rooted-1")
        stderr = wait_for(
            lambda: (
                operator.run("logs", "rooted-1", "--task", "worker:0", "--output", "raw").stdout
            ),
            SOON_S,
            "it is root",
        )
        pid = int(stderr.split()[1])
        try:
            answer = operator.json("stop", "rooted-1", exit_code=5)
            rows = {row["host"]: row for row in answer["hosts"]}
            assert not answer["ok"] and rows["n2"]["survivors"] == [pid] and rows["n1"]["ok"], (
                answer
            )
            stderr = operator.run("stop", "rooted-1", exit_code=5).stderr
            assert str(pid) in stderr and "n2" in stderr, stderr
        finally:
            subprocess.run(
                host_command(operator.lab, "n2", ["kill", "-9", str(pid)], root=True),
                check=True,
                timeout=20,
            )
        operator.run("stop", "rooted-1", exit_code=0)
    assert_nothing_left(operator, "rooted-1", "rooted")
