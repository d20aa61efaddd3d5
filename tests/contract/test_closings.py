"""Test which connections tfdeploy retries after a real sshd has closed them, and which fail.

An error names the cause and the setting of sshd. The penalties of sshd are enabled here.
"""

from __future__ import annotations

import re
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from support.lab.sessions import refused
from support.lab.sshd import sshd_knows
from support.waiting import wait_for
from tfdeploy.errors import TfdeployError
from tfdeploy.operations import trust
from tfdeploy.transport.fleet import SshFleet
from tfdeploy.transport.ssh import closings

penalises = pytest.mark.skipif(
    not sshd_knows("PerSourcePenalties yes"), reason="this sshd has no penalties (OpenSSH 9.8)"
)
DEBUG = "LogLevel DEBUG"
FAILED = "exited after unsuccessful auth attempt"
WITHOUT_LOGIN = re.compile(r"preauth child \d+ for .* exited with status 255")
# With this setting, sshd refuses an address for 8 s after it has refused one key.
HELD_OFF = "PerSourcePenalties authfail:8 noauth:1 min:2 max:8"


@pytest.fixture
def reported() -> list[tuple[str, str]]:
    return []


@pytest.fixture
def fleet(reported: list[tuple[str, str]]) -> Iterator[SshFleet]:
    with SshFleet(on_notice=lambda host, text: reported.append((host, text))) as opened:
        yield opened


@pytest.fixture
def wrong_key(ssh_hosts: Any) -> str:
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(ssh_hosts.root / "wrong")],
        check=True,
    )
    return str(ssh_hosts.root / "wrong")


def await_reaped(sshd: Any, sign: str, count: int) -> None:
    """Wait until the log of sshd contains `sign` at least `count` times.

    sshd counts a failed connection when the process of that connection ends, not before.
    """
    wait_for(lambda: sshd.trace().count(sign) >= count, 10, f"{count} of {sign!r} in sshd's log")


@penalises
def test_retry_succeeds_after_penalty_and_operator_is_informed(
    ssh_hosts: Any, fleet: SshFleet, reported: list[tuple[str, str]], wrong_key: str
) -> None:
    sshd = ssh_hosts.host("n1", DEBUG, HELD_OFF)
    assert "refused the key" in refused(fleet, replace(sshd.host, identity_file=wrong_key)).what
    await_reaped(sshd, FAILED, 1)
    began = time.monotonic()
    assert fleet.session(sshd.host).run(("true",)).exit_code == 0
    assert time.monotonic() - began > 1.5
    text = (
        "sshd refuses this address for some time (PerSourcePenalties, or MaxStartups): tfdeploy "
        "retries for up to 40 s"
    )
    assert reported == [("n1", text)]
    assert sshd.trace().count(FAILED) == 1 and not WITHOUT_LOGIN.findall(sshd.trace())


@penalises
def test_long_penalty_fails_with_cause_and_setting(
    ssh_hosts: Any, fleet: SshFleet, wrong_key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(closings, "HELD_OFF", short := replace(closings.HELD_OFF, patience_s=2.0))
    monkeypatch.setattr(closings, "_WITH_SENTENCE", (short,))
    sshd = ssh_hosts.host("n1", DEBUG, "PerSourcePenalties authfail:60 min:2")
    refused(fleet, replace(sshd.host, identity_file=wrong_key))
    await_reaped(sshd, FAILED, 1)
    error = refused(fleet, sshd.host)
    assert "refuses this address for some time" in error.what and "PerSourcePenalties" in error.what
    assert re.search(r"tfdeploy retried for \d s", error.what)
    assert error.next and "PerSourcePenaltyExemptList 127.0.0.1" in error.next


@penalises
def test_penalty_at_jump_host_is_retried_once_and_reported(
    ssh_hosts: Any, fleet: SshFleet, reported: list[tuple[str, str]], wrong_key: str
) -> None:
    jump = ssh_hosts.host("jump", DEBUG, HELD_OFF)
    hosts = tuple(
        replace(ssh_hosts.host(f"n{number}").host, jump=f"{jump.host.user}@127.0.0.1:{jump.port}")
        for number in (1, 2)
    )
    refused(fleet, replace(jump.host, identity_file=wrong_key))
    await_reaped(jump, FAILED, 1)
    outcomes = fleet.each(hosts, lambda session: session.run(("true",)).exit_code)
    assert list(outcomes.values()) == [0, 0]
    [(host, text)] = reported
    assert host in ("n1", "n2") and text.startswith(
        f"the jump host {jump.host.user}@127.0.0.1:{jump.port}: sshd refuses this address"
    )


@penalises
def test_right_key_after_wrong_key_with_default_limits(
    ssh_hosts: Any, fleet: SshFleet, reported: list[tuple[str, str]], wrong_key: str
) -> None:
    """Test that eight attempts with a wrong key cause only one failed login at sshd, so that sshd
    still accepts the right key.

    With its default limits, sshd rejects an address after five failed logins.
    """
    sshd = ssh_hosts.host("n1", DEBUG)
    for _ in range(8):
        assert "refused the key" in refused(fleet, replace(sshd.host, identity_file=wrong_key)).what
    assert fleet.session(sshd.host).run(("true",)).exit_code == 0
    await_reaped(sshd, FAILED, 1)
    assert sshd.trace().count(FAILED) == 1 and not reported


@pytest.mark.skipif(
    not sshd_knows("RefuseConnection no"), reason="this sshd has no RefuseConnection (OpenSSH 9.9)"
)
def test_refused_connection_is_not_retried_and_is_named(ssh_hosts: Any, fleet: SshFleet) -> None:
    sshd = ssh_hosts.host("n1", DEBUG)
    sshd.config.write_text(f"{sshd.config.read_text()}Match User nobody\nRefuseConnection yes\n")
    # SIGHUP makes sshd read its configuration again.
    sshd.process.send_signal(1)
    wait_for(lambda: "Received SIGHUP; restarting" in sshd.trace(), 10, "sshd restarts")
    wait_for(lambda: sshd.trace().count("Server listening on") == 2, 10, "sshd listens again")
    error = refused(fleet, replace(sshd.host, user="nobody"))
    assert (
        "ends the connection of user nobody without an answer to the login (RefuseConnection"
        in error.what
    )
    assert error.next and "sshd -T -C user=nobody" in error.next
    assert error.retries == 0
    await_reaped(
        sshd, "penalty of 10 seconds for penalty: connection prohibited by RefuseConnection", 1
    )
    assert sshd.trace().count("administratively prohibited connection") == 1
    assert fleet.session(sshd.host).run(("true",)).exit_code == 0


def test_64_connections_at_once_with_default_limits(ssh_hosts: Any, fleet: SshFleet) -> None:
    sshd = ssh_hosts.host("n1", DEBUG)
    hosts = tuple(replace(sshd.host, name=f"n{number}") for number in range(64))
    outcomes = fleet.each(hosts, lambda session: session.run(("true",)).exit_code)
    assert set(outcomes.values()) == {0}, outcomes
    assert FAILED not in sshd.trace() and not WITHOUT_LOGIN.findall(sshd.trace())


def test_error_names_limit_of_full_sshd(
    ssh_hosts: Any, fleet: SshFleet, listener: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    short = tuple(
        replace(closing, patience_s=0.2) for closing in (closings.HELD_OFF, closings.CROWDED)
    )
    monkeypatch.setattr(closings, "_WITH_SENTENCE", short)
    sshd = ssh_hosts.host("n1", "MaxStartups 1:100:1")
    with socket.create_connection(("127.0.0.1", sshd.port)) as first:
        assert first.recv(4) == b"SSH-"
        error = refused(fleet, sshd.host)
        assert "MaxStartups" in error.what and error.retries == 8
    assert fleet.session(sshd.host).run(("true",)).exit_code == 0


@pytest.mark.skipif(
    not sshd_knows("UnusedConnectionTimeout 0"),
    reason="this sshd has no UnusedConnectionTimeout (9.2)",
)
def test_connection_returns_after_unused_connection_timeout(
    ssh_hosts: Any, fleet: SshFleet
) -> None:
    sshd = ssh_hosts.host("n1", "UnusedConnectionTimeout 1")
    session = fleet.session(sshd.host)
    assert session.run(("sleep 2; echo still here",)).stdout == b"still here\n"
    wait_for(
        lambda: "terminating inactive connection" in sshd.trace(), 20, "sshd ends the connection"
    )
    wait_for(lambda: not session.is_alive, 10, "the end is seen here")
    assert fleet.session(sshd.host).run(("true",)).exit_code == 0


def test_server_that_closes_silently_is_retried_and_named(
    ssh_hosts: Any, fleet: SshFleet, listener: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(closings, "SILENT", replace(closings.SILENT, patience_s=0.5))
    closed: list[float] = []

    def close(sock: Any) -> None:
        closed.append(time.monotonic())
        sock.close()

    error = refused(fleet, replace(ssh_hosts.host("n1").host, port=listener(close)))
    assert "closes connections before the handshake" in error.what and len(closed) > 1


@penalises
def test_trust_opens_one_connection_per_machine_without_login(ssh_hosts: Any) -> None:
    jump = ssh_hosts.host("jump", DEBUG, known=False)
    jump_target = f"{jump.host.user}@127.0.0.1:{jump.port}"
    behind = [ssh_hosts.host(f"n{number}", DEBUG, known=False) for number in range(3)]
    hosts = (jump.host, *(replace(sshd.host, jump=jump_target) for sshd in behind))
    first = trust.scan_host_keys(hosts)
    assert [scanned.state for scanned in first] == ["new", "new", *["unreachable"] * 3]
    assert all(
        "the jump host" in scanned.outcome.what
        for scanned in first
        if isinstance(scanned.outcome, TfdeployError)
    )
    await_ended(jump, 1)
    trust.record_new_keys(first)
    second = trust.scan_host_keys(hosts)
    assert [scanned.state for scanned in second] == ["known", "known", *["new"] * 3]
    await_ended(jump, 2)
    for sshd in behind:
        await_ended(sshd, 1)


def await_ended(sshd: Any, count: int) -> None:
    wait_for(
        lambda: len(WITHOUT_LOGIN.findall(sshd.trace())) >= count,
        10,
        "connections without a login are counted",
    )
    assert len(WITHOUT_LOGIN.findall(sshd.trace())) == count
