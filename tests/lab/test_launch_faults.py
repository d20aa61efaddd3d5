"""What fails between the first word of a launch and its commit: nothing runs anywhere, and the error says who and what next."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from bystander import LISTEN, bystander
from commandline import Tfdeploy
from eventpipe import EventPipe
from hostside import changed_host, on_host
from jobs import narrow_inventory, write_job
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


@pytest.mark.fault("29 one of eight hosts dies between prepare and start")
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


@pytest.mark.fault("51 Ctrl-C once and twice in each phase of a launch")
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


@pytest.mark.fault("51 Ctrl-C while the tasks come up")
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


@pytest.mark.fault("51 Ctrl-C in the view of a run")
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


@pytest.mark.fault("35 tfdeploy killed in the middle of a launch")
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


def planned_ports(pipe: EventPipe, host: str) -> list[set[int]]:
    """The ports of the host's tasks and mesh, in each plan that was made."""
    found = []
    for event in pipe.events:
        if event["kind"] == "plan":
            own = next(each for each in event["data"]["hosts"] if each["host"] == host)
            tasks = {int(task["port"]) for task in event["data"]["tasks"] if task["host"] == host}
            found.append(tasks | {int(own["mesh_port"])})
    return found


@pytest.mark.fault("27 a port taken before the launch")
def test_a_taken_port_is_passed_over_and_named(operator: Tfdeploy) -> None:
    write_job(operator, "taken", "quick.py", "--steps=1")
    with bystander(operator.lab, "n2", LISTEN, "2222") as stranger:
        done = operator.run("launch", "--wait", "--name", "taken-1", exit_code=0)
        rows = operator.json("status", "taken-1")["tasks"]
        assert stranger.poll() is None
    assert "n2" in done.stderr and "2222 by pid" in done.stderr, done.stderr
    assert not any(row["host"] == "n2" and row["address"].endswith(":2222") for row in rows)


@pytest.mark.fault("27 a port taken between choice and start")
@pytest.mark.parametrize("which", ["task", "mesh"])
def test_a_port_taken_after_the_probe_is_planned_anew(operator: Tfdeploy, pipe: EventPipe, which: str) -> None:
    write_job(operator, "raced", "quick.py", "--steps=1")
    run = f"raced-{which}"
    launching = operator.start("launch", "--wait", "--name", run, *pipe.words)
    pipe.hold_at("step", step="prepare", state="begin")
    first = planned_ports(pipe, "n3")[0]
    port = min(first) if which == "task" else max(first)
    with bystander(operator.lab, "n3", LISTEN, str(port)):
        pipe.go_on()
        code, said = ended(launching)
    assert code == 0, said
    assert "probing and planning again" in said and str(port) in said, said
    assert port not in planned_ports(pipe, "n3")[-1]
    assert_nothing_left(operator, run, "raced")


@pytest.mark.fault("27 a port taken again and again")
def test_a_port_taken_again_and_again_is_refused(operator: Tfdeploy, pipe: EventPipe) -> None:
    write_job(operator, "unlucky", "quick.py", "--steps=1")
    launching = operator.start("launch", "--name", "unlucky-1", *pipe.words)
    with ExitStack() as strangers:
        for _ in range(3):
            pipe.hold_at("step", step="prepare", state="begin")
            port = min(planned_ports(pipe, "n3")[-1])
            strangers.enter_context(bystander(operator.lab, "n3", LISTEN, str(port)))
        pipe.go_on()
        code, said = ended(launching)
    assert code == 3 and "n3" in said and str(port) in said.partition("error:")[2], said
    assert_nothing_left(operator, "unlucky-1", "unlucky")


@pytest.mark.fault("27 a fixed port taken, its owner")
@pytest.mark.fault("5 more tasks than ports")
def test_a_range_with_too_few_ports_is_refused_with_their_owner(operator: Tfdeploy) -> None:
    write_job(operator, "narrow", "quick.py", "--steps=1")
    narrow_inventory(operator, ports="2222-2223")
    with bystander(operator.lab, "n2", LISTEN, "2223"):
        said = operator.run("launch", "--name", "narrow-1", exit_code=3).stderr
    for word in ("n2", "2222-2223", "2223 by pid", "python3", "ports:"):
        assert word in said, said
    assert_nothing_left(operator, "narrow-1", "narrow")


@pytest.mark.fault("53 the ports are free for the next run at once")
def test_a_range_of_just_enough_ports_does_for_one_run_after_another(operator: Tfdeploy) -> None:
    """What connections leave behind on the mesh's port for a minute is in nobody's way."""
    write_job(operator, "enough", "quick.py", "--steps=1")
    narrow_inventory(operator, ports="2230-2231")
    for number in (1, 2):
        operator.run("launch", "--wait", "--name", f"enough-{number}", exit_code=0)
        assert_nothing_left(operator, f"enough-{number}", "enough", within_s=10)


# --- the program's own faults

FAULTY = {
    "a syntax error": ("def broken(:\n", "SyntaxError", "failed with exit code 1"),
    "exits at once": ("print('my last words'); raise SystemExit(3)\n", "my last words", "failed with exit code 3"),
    "is killed": ("import os\nprint('here', flush=True)\nos.kill(os.getpid(), 9)\n", "here", "killed by signal 9"),
}
PROLOGUE = """import argparse, sys, time
parser = argparse.ArgumentParser()
parser.add_argument("--job_name")
parser.add_argument("--task_index", type=int)
args = parser.parse_args()
"""


def write_program(operator: Tfdeploy, name: str, text: str, **keys: object) -> None:
    write_job(operator, name, "quick.py", **keys)
    (operator.cwd / "quick.py").unlink()
    (operator.cwd / "train.py").write_text(text)
    job = operator.cwd / "tfdeploy.yaml"
    job.write_text(job.read_text().replace("quick.py", "train.py"))


@pytest.mark.fault("30 a syntax error, an early exit, a signal; no restart loop")
@pytest.mark.parametrize("fault", ["a syntax error", "exits at once", "is killed"])
def test_a_program_that_fails_at_once_fails_the_launch_in_its_own_words(operator: Tfdeploy, fault: str) -> None:
    text, own_words, ours = FAULTY[fault]
    write_program(operator, "faulty", text, flags="none")
    run = "faulty-" + fault.replace(" ", "-")
    said = operator.run("launch", "--name", run, exit_code=1).stderr
    error = said.partition("error:")[2]
    assert own_words in error and ours in error and f"tfdeploy logs {run}" in error, said
    assert_nothing_left(operator, run, "faulty")
    assert own_words in operator.run("logs", run, exit_code=0).stdout
    found = operator.json("status", run)
    assert found["state"] == "failed" and all(row["attempt"] == 1 and row["restarts"] == 0 for row in found["tasks"])


LOADED = """import mmap
library = open("tensorflow.so", "w+b", buffering=0)
library.write(b"x")
loaded = mmap.mmap(library.fileno(), 1, access=mmap.ACCESS_READ)
"""


@pytest.mark.fault("37 a worker or a ps that exits 0 before it was up")
@pytest.mark.parametrize("role", ["worker", "ps"])
def test_a_good_exit_that_is_no_success_fails_the_launch(operator: Tfdeploy, role: str) -> None:
    """A program that looks as if it had loaded TensorFlow, and ends before it serves; a ps never ends by itself."""
    ends = f"if args.job_name != '{role}': time.sleep(1000)\nprint('done already', flush=True)\ntime.sleep(2)\n"
    write_program(operator, "early", PROLOGUE + LOADED + ends, roles={"worker": {"count": 1}})
    run = f"early-{role}"
    said = operator.run("launch", "--wait", "--name", run, exit_code=1).stderr
    error = said.partition("error:")[2]
    assert f"{role}:0 on n" in error and "ended too early, with exit code 0" in error and "done already" in error, said
    assert operator.json("status", run)["state"] == "failed"
    assert_nothing_left(operator, run, "early")


@pytest.mark.fault("30 a program that is never up")
def test_a_task_that_is_not_up_in_time_fails_the_launch(operator: Tfdeploy) -> None:
    text = PROLOGUE + LOADED + "print('still loading', flush=True)\ntime.sleep(1000)\n"
    write_program(operator, "late-up", text, ready={"after": "5s", "timeout": "6s"}, stop={"grace": "1s"})
    done = operator.run("launch", "--name", "late-up-1", exit_code=1)
    error = done.stderr.partition("error:")[2]
    assert "ready.timeout" in error and "still loading" in error and "@n" in error, done.stderr
    assert_nothing_left(operator, "late-up-1", "late-up")


@pytest.mark.fault("30 the program is missing")
def test_a_program_that_is_not_there_is_refused_before_anything_starts(operator: Tfdeploy) -> None:
    write_job(operator, "missing", "quick.py", "--steps=1")
    said = operator.run("launch", "--name", "missing-1", "--", "python", "quik.py").stderr
    assert "quik.py" in said and "quick.py" in said, said
    assert operator.run("launch", "--name", "missing-1", "--", "python", "quik.py").returncode == 3
    done = operator.run("launch", "--name", "missing-2", "--", "no-such-program", "--fast")
    assert done.returncode in (1, 3) and "no-such-program" in done.stderr.partition("error:")[2], done.stderr
    for run in ("missing-1", "missing-2"):
        assert_nothing_left(operator, run, "missing")


# --- names that are taken


@pytest.mark.fault("56 the run folder is a link, a file, another run's")
@pytest.mark.parametrize("there", ["a link", "a file", "another run"])
def test_a_run_folder_that_exists_already_is_refused(operator: Tfdeploy, there: str) -> None:
    write_job(operator, "exists", "quick.py", "--steps=1")
    run = "exists-" + there.replace(" ", "-")
    if there == "another run":
        operator.run("launch", "--wait", "--name", run, exit_code=0)
    else:
        make = {"a link": "ln -s /tmp", "a file": "touch"}[there]
        on_host(operator.lab, "n3", f"mkdir -p ~/tfdeploy/exists/runs && {make} ~/tfdeploy/exists/runs/{run}")
    done = operator.run("launch", "--name", run, exit_code=3)
    error = done.stderr.partition("error:")[2]
    assert run in error and "--name" in error, done.stderr
    assert_nothing_left(operator, run, "exists")


@pytest.mark.fault("56 the run folder belongs to someone else")
def test_a_run_folder_of_another_user_is_named_and_let_be(operator: Tfdeploy) -> None:
    write_job(operator, "rooted", "quick.py", "--steps=1")
    runs = "/home/lab/tfdeploy/rooted/runs"
    on_host(operator.lab, "n3", f"mkdir -p {runs}")
    with changed_host(operator.lab, "n3", f"mkdir -m 700 {runs}/rooted-1", f"rmdir {runs}/rooted-1"):
        said = operator.run("launch", "--name", "rooted-1").stderr
        assert f"{runs}/rooted-1" in said and "n3" in said and "next: " in said and "Traceback" not in said, said
        assert_nothing_left(operator, "rooted-1", "rooted")
    operator.run("launch", "--wait", "--name", "rooted-1", exit_code=0)
    assert_nothing_left(operator, "rooted-1", "rooted")
