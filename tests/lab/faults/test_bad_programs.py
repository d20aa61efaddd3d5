"""Test programs that cannot do what the job requests.

The launch fails before anything starts, the error names the file and the line, and nothing remains
on the hosts.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.faults.lines import variations
from support.lab.commandline import Tfdeploy
from support.lab.hosts import on_host
from support.lab.jobs import write_job
from support.lab.remains import assert_nothing_left
from tfdeploy.lab import Lab

OTHER_MEANING = """import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--job_name", type=int, help="the job's number in our queue")
parser.add_argument("--task_index", type=int)
print(parser.parse_args(), flush=True)
"""


@pytest.fixture
def operator(loopback_lab: Lab, tfdeploy: Callable[[Lab], Tfdeploy]) -> Tfdeploy:
    return tfdeploy(loopback_lab)


def refused(operator: Tfdeploy, job: str, *args: str) -> str:
    """Check that the launch and its dry run fail with the same error and that nothing is sent.
    Return the error.
    """
    dry, real = (
        operator.run("launch", *more, *args, exit_code=3).stderr for more in (("--dry-run",), ())
    )
    errors = [text.partition("error:")[2] for text in (dry, real)]
    assert errors[0] == errors[1] != "" and "Traceback" not in dry + real
    for host in operator.lab.hosts:
        assert (
            on_host(operator.lab, host, f"ls ~/tfdeploy/{job}/releases 2>/dev/null || true") == ""
        )
    return errors[0]


@pytest.mark.fault("30 a program whose flags mean something else")
def test_flags_that_mean_something_else_are_refused_with_their_line(operator: Tfdeploy) -> None:
    write_job(operator, "flagged", "quick.py")
    (operator.cwd / "quick.py").write_text(OTHER_MEANING)
    error = refused(operator, "flagged")
    assert (
        "--job_name of the program accepts a whole number" in error
        and "quick.py:3" in error
        and "`flags: none`" in error
    ), error

    own = ("--", "python", "quick.py", "--job_name=7", "--task_index={task_index}")
    operator.run("launch", "--wait", "--mode", "local", "--name", "flagged-1", *own, exit_code=0)
    assert (
        "Namespace(job_name=7, task_index=0)"
        in operator.run("logs", "flagged-1", exit_code=0).stdout
    )


@pytest.mark.fault("30 an index that the command gives to every task")
def test_an_index_for_every_task_is_refused(operator: Tfdeploy) -> None:
    write_job(operator, "one-index", "quick.py", "--task_index=1")
    error = refused(operator, "one-index")
    assert "the command gives --task_index=1 to every task, and so to ps:0" in error, error


@pytest.mark.fault("30 a program file that is not in the code")
@pytest.mark.parametrize(
    "command", variations(["python quik.py", "nice python3 quik.py", "./quik.py", "sh quik.py"])
)
def test_a_file_that_is_not_in_the_code_is_refused_with_the_nearest(
    operator: Tfdeploy, command: str
) -> None:
    write_job(operator, "no-file", "quick.py")
    error = refused(operator, "no-file", "--", *command.split())
    assert (
        "the program quik.py is not in the code" in error and "did you mean quick.py?" in error
    ), error


@pytest.mark.fault("30 a program that is not on PATH")
def test_a_program_that_no_path_has_is_refused_before_anything_starts(operator: Tfdeploy) -> None:
    write_job(operator, "no-program", "quick.py")
    error = refused(operator, "no-program", "--name", "no-program-1", "--", "pyton", "quick.py")
    assert "there is no program pyton on PATH of n" in error and "did you mean python?" in error, (
        error
    )
    assert "where: the command line, behind --" in error, error
    assert_nothing_left(operator, "no-program-1", "no-program")


@pytest.mark.fault("30 a program that Python cannot parse")
def test_a_program_that_does_not_parse_is_told_before_anything_is_sent(operator: Tfdeploy) -> None:
    write_job(operator, "no-parse", "quick.py")
    (operator.cwd / "quick.py").write_text("import sys\ndef broken(:\n")
    done = operator.run("launch", "--dry-run")
    assert "quick.py:2 does not parse" in done.stdout + done.stderr, done.stdout + done.stderr
    # The launch is refused only if the hosts have the same version of Python as this machine.
    if done.returncode:
        assert "where: quick.py:2" in refused(operator, "no-parse")


@pytest.mark.fault("56 a run's name that is taken, said by a dry run too")
def test_a_dry_run_says_that_the_name_is_taken(operator: Tfdeploy) -> None:
    write_job(operator, "named", "quick.py", "--steps=1")
    operator.run("launch", "--dry-run", "--name", "named-1", exit_code=0)
    operator.run("launch", "--wait", "--name", "named-1", exit_code=0)
    for dry in (("--dry-run",), ()):
        error = operator.run("launch", *dry, "--name", "named-1", exit_code=3).stderr.partition(
            "error:"
        )[2]
        assert "run named-1 exists already" in error and "--name" in error, error
        assert operator.run("logs", "named-1", "--task", "worker:0", exit_code=0).stdout, (
            "what it had stored is gone"
        )
    operator.run("-q", "launch", "--dry-run", "--name", "named-2", exit_code=0)
