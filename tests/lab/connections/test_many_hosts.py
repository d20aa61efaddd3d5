"""Test every verb with sixty-four hosts, from a control machine on which a process may open only
256 files.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

from support.lab.commandline import Tfdeploy
from support.lab.jobs import write_job
from support.lab.remains import assert_nothing_left
from tfdeploy.lab import Lab

pytestmark = [pytest.mark.isolated, pytest.mark.long]
HOSTS = 64


def few_files(operator: Tfdeploy, *args: str, exit_code: int = 0) -> str:
    """Run `tfdeploy ARGS` with a limit of 256 file descriptors, and return its output."""
    argv = ["sh", "-c", 'ulimit -n 256 && exec "$@"', "sh", *operator.argv(*args)]
    done = subprocess.run(
        argv,
        env=operator.env,
        cwd=operator.cwd,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == exit_code, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout + done.stderr


@pytest.mark.fault("54 64 hosts and 256 descriptors: exec, launch, status, logs, stop")
@pytest.mark.fault("47 64 hosts in every view")
def test_every_verb_works_with_64_hosts(
    new_lab: Callable[..., Lab], tfdeploy: Callable[[Lab], Tfdeploy]
) -> None:
    lab = new_lab("isolated", HOSTS)
    operator = tfdeploy(lab)
    assert f"n[1-{HOSTS}] ({HOSTS} hosts)" in few_files(operator, "exec", "--", "echo", "here")
    write_job(
        operator, "wide", "quick.py", "--steps=100000", "--pause=2", ready={"timeout": "170s"}
    )
    few_files(operator, "launch", "--detach", "--name", "wide-1")
    rows = operator.json("status", "wide-1")["tasks"]
    assert len(rows) == HOSTS and {row["state"] for row in rows} == {"running"}
    lines = few_files(operator, "logs", "wide-1", "-n", "1").splitlines()
    assert {line.partition("@")[2].split()[0] for line in lines if "@" in line} == set(lab.hosts)
    few_files(operator, "stop", "wide-1", "--now")
    assert_nothing_left(operator, "wide-1", "wide", within_s=60)
