"""Test how many penalties an operator's commands get from an sshd that penalises addresses (OpenSSH
9.8 and newer).
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable

import pytest

from support.lab.commandline import Tfdeploy
from support.lab.hosts import reboot, set_inventory
from support.lab.jobs import write_job
from support.lab.sshd import sshd_knows
from support.waiting import wait_for
from tfdeploy.lab import Lab

FAILED = re.compile(r"exited after unsuccessful auth attempt")
WITHOUT_LOGIN = re.compile(r"preauth child \d+ for .* exited with status 255")

pytestmark = pytest.mark.skipif(
    not sshd_knows("PerSourcePenalties yes"), reason="this sshd has no penalties (OpenSSH 9.8)"
)


def console(lab: Lab, host: str) -> str:
    return (lab.root / "hosts" / host / "console.log").read_text(errors="replace")


def costs(lab: Lab, host: str) -> tuple[int, int]:
    """Return (number of failed logins, number of connections without a login), read from the log of
    the host's sshd."""
    text = console(lab, host)
    return len(FAILED.findall(text)), len(WITHOUT_LOGIN.findall(text))


@pytest.fixture
def lab(new_lab: Callable[..., Lab]) -> Lab:
    """Return a lab of two hosts whose sshds log each failed login and each connection without a
    login.
    """
    made = new_lab("loopback", 2)
    for host in made.hosts:
        reboot(made, host, sshd_lines="LogLevel DEBUG")
    return made


@pytest.fixture
def operator(lab: Lab, tfdeploy: Callable[[Lab], Tfdeploy]) -> Tfdeploy:
    return tfdeploy(lab)


def test_verbs_in_a_row_cost_one_connection_without_a_login_and_that_is_trust(
    operator: Tfdeploy, lab: Lab
) -> None:
    """Count the connections of the lab's readiness check, of the lab's status and of several verbs.
    On each host, only the connection of `trust` ends without a login."""
    set_inventory(operator, defaults={"known_hosts": str(operator.home / "known_hosts")})
    write_job(operator, "row", "quick.py", "--steps=2")
    # A file of this size is sent through rsync, over a separate connection.
    (operator.cwd / "large").write_bytes(bytes(6_000_000))
    operator.run("trust", "--yes", exit_code=0)
    for args in (
        ["check"],
        ["launch", "--wait"],
        ["logs"],
        ["status"],
        ["fetch"],
        ["exec", "--", "true"],
    ):
        done = operator.run(*args, exit_code=0)
        assert "refuses this address for some time" not in done.stderr
    assert all(row["state"] == "up" for row in lab.status())
    wait_for(lambda: all(costs(lab, host)[1] for host in lab.hosts), 10, "sshd has counted trust")
    assert {host: costs(lab, host) for host in lab.hosts} == dict.fromkeys(lab.hosts, (0, 1))


def test_an_operator_with_wrong_keys_gets_in_with_the_right_one(
    operator: Tfdeploy, lab: Lab
) -> None:
    wrong = operator.home / "wrong"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(wrong)], check=True)
    reboot(lab, "n1", sshd_lines="LogLevel DEBUG\nPerSourcePenalties authfail:8 min:9 max:12")
    set_inventory(operator, defaults={"identity_file": str(wrong)})
    for count in (1, 2):
        error = operator.json("exec", "--limit", "n1", "--", "true", exit_code=4)["hosts"][0][
            "error"
        ]
        assert "refused the key" in error
        wait_for(
            lambda count=count: costs(lab, "n1")[0] == count,
            10,
            "sshd has counted the failed login",
        )
    set_inventory(operator)
    done = operator.run("exec", "--", "echo", "in", exit_code=0)
    assert done.stdout == "--- n[1-2] (2 hosts)\nin\n"
    assert (
        "[n1] sshd refuses this address for some time (PerSourcePenalties, or MaxStartups)"
        in done.stderr
    )
    assert costs(lab, "n1") == (2, 0)
