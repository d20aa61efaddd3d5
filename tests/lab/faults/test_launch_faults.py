"""Test launches in which a host, a program or a folder has a fault from the start.

After such a launch nothing runs, and the error names the host and says what to do.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.faults.lines import variations
from support.lab.commandline import Tfdeploy, wait_for_end
from support.lab.event_pipe import EventPipe
from support.lab.hosts import host_changed_by_scripts, on_host
from support.lab.jobs import write_job
from support.lab.remains import assert_nothing_left
from support.stopwatch import Stopwatch
from tfdeploy.lab import Lab

pytestmark = pytest.mark.isolated
SOON_S = 60.0


@pytest.fixture
def operator(few_hosts: Lab, tfdeploy: Callable[[Lab], Tfdeploy]) -> Tfdeploy:
    return tfdeploy(few_hosts)


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
    watch = Stopwatch()
    pipe.go_on()
    code, output = wait_for_end(launching)
    assert code == 4, output
    assert "n5" in output.partition("error:")[2], output
    assert_nothing_left(operator, "eight-1", "eight", within_s=SOON_S - watch.seconds)
    eight.boot("n5")
    # The power cut has killed the processes of the old run on n5. The next launch must find that
    # out.
    operator.run("launch", "--detach", "--name", "eight-2", exit_code=0)
    for run in ("eight-2", "eight-1"):
        operator.run("stop", run, "--now", exit_code=0)
        assert_nothing_left(operator, run, "eight")


# --- faults of the user's program

FAULTY = {
    "a syntax error": ("exec('def broken(:')\n", "SyntaxError", "failed with exit code 1"),
    "exits at once": (
        "print('my last words'); raise SystemExit(3)\n",
        "my last words",
        "failed with exit code 3",
    ),
    "is killed": (
        "import os\nprint('here', flush=True)\nos.kill(os.getpid(), 9)\n",
        "here",
        "killed by signal 9",
    ),
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
@pytest.mark.parametrize("fault", variations(["a syntax error", "exits at once", "is killed"]))
def test_a_program_that_fails_at_once_fails_the_launch_in_its_own_words(
    operator: Tfdeploy, fault: str
) -> None:
    text, own_words, ours = FAULTY[fault]
    # On a busy machine, the program lives longer than 300 ms.
    write_program(operator, "faulty", text, flags="none", ready={"after": "60s"})
    run = "faulty-" + fault.replace(" ", "-")
    stderr = operator.run("launch", "--name", run, exit_code=1).stderr
    error = stderr.partition("error:")[2]
    assert own_words in error and ours in error and f"tfdeploy logs {run}" in error, stderr
    assert (
        "that was before the run counted as up (ready.after: " in error
        and "so the launch was undone" in error
    ), stderr
    assert_nothing_left(operator, run, "faulty")
    assert own_words in operator.run("logs", run, exit_code=0).stdout
    answer = operator.json("status", run)
    assert answer["state"] == "failed" and all(
        row["attempt"] == 1 and row["restarts"] == 0 for row in answer["tasks"]
    )


LOADED = """import mmap
library = open("tensorflow.so", "w+b", buffering=0)
library.write(b"x")
loaded = mmap.mmap(library.fileno(), 1, access=mmap.ACCESS_READ)
"""


@pytest.mark.fault("37 a worker or a ps that exits 0 before it was up")
@pytest.mark.parametrize("role", variations(["worker", "ps"]))
def test_a_good_exit_that_is_no_success_fails_the_launch(operator: Tfdeploy, role: str) -> None:
    """The launch fails if a program looks as if it had loaded TensorFlow, but exits with code 0
    before it serves.

    For a ps, exit code 0 is never a success, because a ps does not end by itself.
    """
    ends = (
        f"if args.job_name != '{role}': time.sleep(1000)\nprint('done already', "
        "flush=True)\ntime.sleep(2)\n"
    )
    # A task counts as ready after 60 s instead of the default 5 s. So the program exits before the
    # task counts as ready, also on a busy machine.
    roles, ready = {"worker": {"count": 1}}, {"after": "60s"}
    write_program(operator, "early", PROLOGUE + LOADED + ends, roles=roles, ready=ready)
    run = f"early-{role}"
    stderr = operator.run("launch", "--wait", "--name", run, exit_code=1).stderr
    error = stderr.partition("error:")[2]
    assert (
        f"{role}:0 on n" in error
        and "ended too early, with exit code 0" in error
        and "done already" in error
    ), stderr
    assert operator.json("status", run)["state"] == "failed"
    assert_nothing_left(operator, run, "early")


@pytest.mark.fault("30 a program that is never up")
def test_a_task_that_is_not_up_in_time_fails_the_launch(operator: Tfdeploy) -> None:
    text = PROLOGUE + LOADED + "print('still loading', flush=True)\ntime.sleep(1000)\n"
    write_program(
        operator, "late-up", text, ready={"after": "5s", "timeout": "6s"}, stop={"grace": "1s"}
    )
    done = operator.run("launch", "--name", "late-up-1", exit_code=1)
    error = done.stderr.partition("error:")[2]
    assert "ready.timeout" in error and "still loading" in error and "@n" in error, done.stderr
    assert_nothing_left(operator, "late-up-1", "late-up")


@pytest.mark.fault("30 the program is missing")
def test_a_program_that_is_not_there_is_refused_before_anything_starts(operator: Tfdeploy) -> None:
    write_job(operator, "missing", "quick.py", "--steps=1")
    stderr = operator.run("launch", "--name", "missing-1", "--", "python", "quik.py").stderr
    assert "quik.py" in stderr and "quick.py" in stderr, stderr
    assert operator.run("launch", "--name", "missing-1", "--", "python", "quik.py").returncode == 3
    done = operator.run("launch", "--name", "missing-2", "--", "no-such-program", "--fast")
    assert done.returncode in (1, 3) and "no-such-program" in done.stderr.partition("error:")[2], (
        done.stderr
    )
    for run in ("missing-1", "missing-2"):
        assert_nothing_left(operator, run, "missing")


# --- names that are taken


@pytest.mark.fault("56 the run folder is a link, a file, another run's")
@pytest.mark.parametrize("there", variations(["a link", "a file", "another run"]))
def test_a_run_folder_that_exists_already_is_refused(operator: Tfdeploy, there: str) -> None:
    write_job(operator, "exists", "quick.py", "--steps=1")
    run = "exists-" + there.replace(" ", "-")
    if there == "another run":
        operator.run("launch", "--wait", "--name", run, exit_code=0)
    else:
        make = {"a link": "ln -s /tmp", "a file": "touch"}[there]
        on_host(
            operator.lab,
            "n3",
            f"mkdir -p ~/tfdeploy/exists/runs && {make} ~/tfdeploy/exists/runs/{run}",
        )
    done = operator.run("launch", "--name", run, exit_code=3)
    error = done.stderr.partition("error:")[2]
    assert run in error and "--name" in error, done.stderr
    assert_nothing_left(operator, run, "exists")


@pytest.mark.fault("56 the run folder belongs to someone else")
def test_a_run_folder_of_another_user_is_named_and_let_be(operator: Tfdeploy) -> None:
    write_job(operator, "rooted", "quick.py", "--steps=1")
    runs = "/home/lab/tfdeploy/rooted/runs"
    on_host(operator.lab, "n3", f"mkdir -p {runs}")
    with host_changed_by_scripts(
        operator.lab, "n3", f"mkdir -m 700 {runs}/rooted-1", f"rmdir {runs}/rooted-1"
    ):
        stderr = operator.run("launch", "--name", "rooted-1").stderr
        assert (
            f"{runs}/rooted-1" in stderr
            and "n3" in stderr
            and "next: " in stderr
            and "Traceback" not in stderr
        ), stderr
        assert_nothing_left(operator, "rooted-1", "rooted")
    operator.run("launch", "--wait", "--name", "rooted-1", exit_code=0)
    assert_nothing_left(operator, "rooted-1", "rooted")
