"""Test `tfdeploy setup` on three hosts that can reach only the operator's machine.

The setup makes real venvs, and installs two wheels that the test builds.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Callable

import pytest

from support.files.wheels import make_wheel
from support.lab.commandline import Tfdeploy
from support.lab.host_commands import host_command
from support.waiting import wait_for
from tfdeploy.lab import Lab
from tfdeploy.lab.isolated import UID

HOSTS = ("n1", "n2", "n3")
PROGRAM = "import sys, alpha\nprint(sys.executable, alpha.VERSION, flush=True)\n"
SLOW = """#!/bin/sh
case "$*" in
*"pip "*) touch "$HOME/installs"; while [ -e "$HOME/hold" ]; do sleep 0.1; done;;
esac
exec PYTHON "$@"
"""


@pytest.fixture
def operator(
    isolated_lab: Lab, tfdeploy: Callable[[Lab], Tfdeploy], request: pytest.FixtureRequest
) -> Tfdeploy:
    """Return an operator whose job runs on n1 to n3. The job needs the wheel alpha, which in turn
    needs the wheel beta.
    """
    made = tfdeploy(isolated_lab)
    made.env["TFDEPLOY_LIMIT"] = "n[1-3]"
    make_wheel(made.cwd / "wheels", "alpha", "1.0", requires=("beta",))
    make_wheel(made.cwd / "wheels", "beta", "2.1")
    (made.cwd / "requirements.txt").write_text("-r base.txt\n")
    (made.cwd / "base.txt").write_text("alpha>=1\n")
    (made.cwd / "train.py").write_text(PROGRAM)
    name = re.sub(r"\W+", "-", request.node.name.removeprefix("test_"))[:40]
    (made.cwd / "tfdeploy.yaml").write_text(
        f"name: setup-{name}\nmode: local\nready: {{after: 100ms}}\ncommand: [python, train.py]\n"
        "setup: {requirements: requirements.txt, wheels: ./wheels}\n"
    )
    return made


def on(operator: Tfdeploy, host: str, script: str) -> str:
    command = host_command(operator.lab, host, ["sh", "-c", script])
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout


def with_python(operator: Tfdeploy, **python: str) -> None:
    """Use the lab's inventory, but with another `python` for these hosts."""
    text = operator.lab.inventory.read_text()
    for host, path in python.items():
        text = re.sub(rf"( {host}: {{.*)}}", rf"\1, python: {path}}}", text)
    inventory = operator.home / "inventory.yaml"
    inventory.write_text(text)
    operator.env["TFDEPLOY_INVENTORY"] = str(inventory)


def put_python(operator: Tfdeploy, host: str, name: str, text: str) -> None:
    """Write ~/NAME on that host. PYTHON in `text` stands for the lab's interpreter."""
    settings = re.search(r"^  python: (.*)$", operator.lab.inventory.read_text(), re.MULTILINE)
    assert settings is not None
    on(
        operator,
        host,
        f"printf %s '{text.replace('PYTHON', settings[1])}' > ~/{name}; chmod +x ~/{name}",
    )


def slow_python(operator: Tfdeploy, host: str) -> None:
    """Make an installation on that host wait until the file ~/hold is removed. A file ~/installs
    shows that it waits."""
    on(operator, host, "rm -f ~/installs; touch ~/hold")
    put_python(operator, host, "slow-python", SLOW)
    with_python(operator, **{host: "~/slow-python"})


def environments(operator: Tfdeploy, host: str) -> list[str]:
    return on(operator, host, "ls -d ~/tfdeploy/.envs/*.json 2>/dev/null || true").split()


def test_one_environment_on_all_hosts_and_a_run_in_it(operator: Tfdeploy) -> None:
    refused = operator.run("launch", exit_code=3)
    assert "no environment on" in refused.stderr and "next: `tfdeploy setup`" in refused.stderr

    first = operator.run("setup", "-v", exit_code=0)
    for host in HOSTS:
        assert (
            f"[{host}] making the environment" in first.stderr
            and f"[{host}] Successfully installed" in first.stderr
        )
        assert re.search(rf"^{host} +2 packages", first.stderr, re.MULTILINE)

    again = operator.json("setup")
    assert (
        again["ok"]
        and again["differences"] == []
        and [row["host"] for row in again["hosts"]] == list(HOSTS)
    )
    for row in again["hosts"]:
        assert (
            row["packages"] == {"alpha": "1.0", "beta": "2.1"}
            and row["made"] is False
            and row["bytes_sent"] == 0
        )
    assert "had it already" in operator.run("setup", exit_code=0).stderr

    stdout = operator.run("launch", "--dry-run", exit_code=0).stdout
    assert "made by `tfdeploy setup`" in stdout and "the environment of requirements.txt" in stdout
    run = operator.run("launch", "--wait", exit_code=0).stdout.strip()
    lines = operator.run("logs", run, "--output", "raw", exit_code=0).stdout
    assert f"{again['hosts'][0]['environment']}/bin/python 1.0" in lines
    # The wheels are not part of the code.
    assert not on(operator, "n1", "ls -d ~/tfdeploy/setup-*/releases/*/wheels 2>/dev/null || true")

    (operator.cwd / "base.txt").write_text("beta\n")
    assert "present content" in operator.run("launch", exit_code=3).stderr
    job = operator.cwd / "tfdeploy.yaml"
    job.write_text(job.read_text().replace("setup: ", "# setup: "))
    assert "setup: {requirements: requirements.txt}" in operator.run("setup", exit_code=2).stderr
    lacking = operator.run("launch", "--mode", "plain", exit_code=3).stderr
    assert (
        "the program imports alpha (train.py:1)" in lacking and "failed on 2 of 2 hosts" in lacking
    )
    assert "setup: {requirements: requirements.txt}` into the job file and alpha into" in lacking
    assert (
        "n2 packages: the program imports alpha (train.py:1)"
        in operator.run("check", exit_code=1).stdout
    )


@pytest.mark.long
@pytest.mark.fault("31 a requirement that one host of three cannot meet")
def test_each_host_says_its_own_lines_and_the_others_are_done(operator: Tfdeploy) -> None:
    """The setups of n2 and n3 fail with different messages: the interpreter of n2 does not exist,
    and the interpreter of n3 refuses wheels. The setup of n1 succeeds.
    """
    put_python(
        operator, "n3", "no-wheels", '#!/bin/sh\nexport PIP_NO_BINARY=:all:\nexec PYTHON "$@"\n'
    )
    with_python(operator, n2="/nowhere/python", n3="~/no-wheels")
    (operator.cwd / "base.txt").write_text("beta<9\n")
    answer = operator.json("setup", exit_code=1)
    rows = {row["host"]: row for row in answer["hosts"]}
    assert not answer["ok"] and rows["n1"]["ok"] and rows["n1"]["packages"] == {"beta": "2.1"}
    assert "/nowhere/python" in rows["n2"]["error"]
    assert "No matching distribution found for beta<9" in rows["n3"]["error"]
    plain = operator.run("setup", exit_code=1).stderr
    assert "n1: had it already" in plain
    assert 'n2 says: "there is no program /nowhere/python here' in plain and "python: PATH" in plain

    refused = operator.run("launch", "--limit", "n2", exit_code=3).stderr
    assert "/nowhere/python" in refused


def test_what_was_interrupted_is_made_by_the_next(operator: Tfdeploy) -> None:
    """tfdeploy is killed while n2 installs packages. The processes of the installation must then
    end, and a second setup must make the environment.
    """
    (operator.cwd / "base.txt").write_text("alpha<7\n")
    slow_python(operator, "n2")
    first = operator.start("setup", "-v")
    wait_for(lambda: on(operator, "n2", "ls ~/installs || true"), 30, "n2 installs")
    os.killpg(first.pid, signal.SIGKILL)
    wait_for(
        lambda: not on(operator, "n2", "pgrep -f [s]low-python || true"),
        30,
        "nothing installs on n2 any more",
    )
    before = environments(operator, "n2")
    on(operator, "n2", "rm ~/hold")
    rows = {row["host"]: row for row in operator.json("setup")["hosts"]}
    assert all(row["ok"] for row in rows.values()) and rows["n2"]["made"]
    assert len(environments(operator, "n2")) == len(before) + 1


def test_two_at_once_wait_for_each_other(operator: Tfdeploy) -> None:
    (operator.cwd / "base.txt").write_text("alpha<8\n")
    slow_python(operator, "n1")
    first = operator.start("setup", "--limit", "n1")
    wait_for(lambda: on(operator, "n1", "ls ~/installs || true"), 30, "n1 installs")
    second = operator.start("setup", "--limit", "n1")
    assert second.stdout is not None
    said = second.stdout.readline()
    assert "waiting for the setup of" in said
    on(operator, "n1", "rm ~/hold")
    assert first.wait(120) == 0 and second.wait(60) == 0
    assert "had it already" in second.stdout.read()


@pytest.mark.long
@pytest.mark.fault("20 disk full during setup")
def test_a_full_disk_is_named_and_left_empty(operator: Tfdeploy) -> None:
    make_wheel(
        operator.cwd / "wheels", "alpha", "1.5", text=f"BALLAST = {os.urandom(1 << 21).hex()!r}\n"
    )
    (operator.cwd / "base.txt").write_text("alpha==1.5\nbeta\n")
    folder = "/home/lab/tfdeploy/.envs"
    mount = f"mkdir -p {folder} && mount -t tmpfs -o size=2m,uid={UID},mode=700 none {folder}"
    subprocess.run(
        host_command(operator.lab, "n3", ["sh", "-c", mount], root=True), check=True, timeout=30
    )
    try:
        rows = {row["host"]: row for row in operator.json("setup", exit_code=1)["hosts"]}
        assert (
            rows["n1"]["ok"]
            and rows["n2"]["ok"]
            and "No space left on device" in rows["n3"]["error"]
        )
        assert on(operator, "n3", f"find {folder} -mindepth 1 -not -name '*.lock'") == ""
    finally:
        subprocess.run(
            host_command(operator.lab, "n3", ["umount", folder], root=True), check=True, timeout=30
        )
    assert operator.run("setup", "--limit", "n3", exit_code=0)
