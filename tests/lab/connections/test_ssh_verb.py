"""Test `tfdeploy ssh`, which runs OpenSSH with the same settings that the other verbs use."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

from support.lab.commandline import Tfdeploy
from tfdeploy.lab import Lab


@pytest.fixture
def operator(loopback_lab: Lab, tfdeploy: Callable[[Lab], Tfdeploy]) -> Tfdeploy:
    return tfdeploy(loopback_lab)


def test_commands_shells_and_exit_codes_are_those_of_ssh(operator: Tfdeploy) -> None:
    done = operator.run("ssh", "n2", "--", "echo $HOME; exit 3", exit_code=3)
    assert done.stdout.strip().endswith("/hosts/n2/home")
    odd = operator.run(
        "ssh", "n2", "--", "printf", "%s|", "a b", "it's", "$HOME", "--json", exit_code=0
    )
    assert odd.stdout == "a b|it's|$HOME|--json|"
    shell = operator.run("ssh", "n3", stdin="cd; pwd; exit 5\n", exit_code=5)
    assert shell.stdout.strip().endswith("/hosts/n3/home")


def test_a_terminal_here_is_a_terminal_there(operator: Tfdeploy) -> None:
    command = " ".join(operator.argv("ssh", "n2", "--", "tty"))
    done = subprocess.run(
        ["script", "-qec", command, "/dev/null"],
        env=operator.env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "/dev/pts/" in done.stdout, done.stdout + done.stderr


def test_a_host_that_is_not_there_is_named_with_the_nearest(operator: Tfdeploy) -> None:
    completed = operator.run("ssh", "n22", exit_code=2)
    assert "n22" in completed.stderr
    assert "did you mean n2?" in completed.stderr
    assert "exec --json" in operator.run("ssh", "n2", "--json", exit_code=2).stdout
