"""Test one run of each mode on hosts whose Python, OpenSSH and rsync differ from those of the
control machine.

The hosts boot from the root folder in TFDEPLOY_TEST_OTHER_ROOT. For example, `scripts/other-machine
--packages "openssh-server rsync iproute2 nftables" --print-root trixie` prints such a folder.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.lab import tensorflow_stand_in
from support.lab.commandline import Tfdeploy
from support.lab.host_commands import host_command
from support.lab.hosts import on_host
from support.lab.jobs import write_job
from support.lab.remains import assert_nothing_left
from tfdeploy.lab import Lab

VARIABLE = "TFDEPLOY_TEST_OTHER_ROOT"
PYTHON = "/usr/bin/python3"
# A launch requires TensorFlow on the hosts if a program imports it. Here only the servers of mode
# ingraph import it, so a stand-in is enough.
STAND_IN = Path(tensorflow_stand_in.__file__).read_bytes()
INSTALL = (
    "cd /usr/lib/python3/dist-packages; [ -e tensorflow ] || { mkdir tensorflow; cat > "
    "tensorflow/__init__.py; }"
)

pytestmark = pytest.mark.isolated
# MODES is {mode: (program, its flags, {task: its outcome})}.
WORKERS_STOPPED = {"ps:0": "stopped", "worker:0": "stopped", "worker:1": "stopped"}
MODES: dict[str, tuple[str, tuple[str, ...], dict[str, str]]] = {
    "async": (
        "quick.py",
        ("--steps=5",),
        {"ps:0": "stopped", "worker:0": "succeeded", "worker:1": "succeeded"},
    ),
    "sync": (
        "quick.py",
        ("--steps=5",),
        {"ps:0": "stopped", "worker:0": "succeeded", "worker:1": "succeeded"},
    ),
    "mirrored": ("any_mode.py", ("--steps=5",), {"worker:0": "succeeded", "worker:1": "succeeded"}),
    "coordinator": ("any_mode.py", ("--steps=5",), {**WORKERS_STOPPED, "chief:0": "succeeded"}),
    "ingraph": ("any_mode.py", ("--steps=5",), {**WORKERS_STOPPED, "chief:0": "succeeded"}),
    "local": ("any_mode.py", ("--steps=5",), {"worker:0": "succeeded"}),
    "plain": ("all_reduce.py", ("--steps=5",), {"worker:0": "succeeded", "worker:1": "succeeded"}),
}


@pytest.fixture(scope="module")
def other_hosts(new_lab: Callable[..., Lab]) -> Lab:
    rootfs = os.environ.get(VARIABLE)
    if not rootfs:
        pytest.skip(
            f"no other root for the hosts; to have it: {VARIABLE}=$(scripts/other-machine ... "
            "--print-root trixie)"
        )
    lab = new_lab("isolated", 3, rootfs=rootfs, python=PYTHON)
    for host in lab.hosts:
        subprocess.run(
            host_command(lab, host, ["sh", "-c", INSTALL], root=True), input=STAND_IN, check=True
        )
    return lab


@pytest.fixture
def operator(other_hosts: Lab, tfdeploy: Callable[[Lab], Tfdeploy]) -> Tfdeploy:
    return tfdeploy(other_hosts)


def test_the_hosts_are_of_another_system(operator: Tfdeploy) -> None:
    release = on_host(operator.lab, "n1", "cat /etc/os-release")
    assert f'VERSION_ID="{platform.freedesktop_os_release()["VERSION_ID"]}"' not in release


@pytest.mark.parametrize("mode", MODES)
def test_a_run_ends_on_hosts_of_another_system(operator: Tfdeploy, mode: str) -> None:
    program, flags, expected = MODES[mode]
    job, run = f"other-{mode}", f"other-{mode}-1"
    write_job(operator, job, program, *flags, mode=mode, finish={"grace": "1s"})
    operator.run("launch", "--wait", "--name", run, exit_code=0)
    tasks: list[dict[str, Any]] = operator.json("status", run)["tasks"]
    assert {task["task"]: task["outcome"] for task in tasks} == expected
    lines = operator.run("logs", run, "--json", exit_code=0).stdout.splitlines()
    assert any("step 5" in json.loads(line)["line"] for line in lines)
    assert_nothing_left(operator, run, job)
