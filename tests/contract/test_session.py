"""Test a session with a host: how commands run in it, and which host keys it accepts. The error of
a failure names exactly one cause.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, ClassVar

import paramiko
import pytest
from paramiko.common import MSG_CHANNEL_REQUEST

from support.lab.sessions import refused
from support.stopwatch import Stopwatch
from tfdeploy.errors import HostFailed, HostUnreachable
from tfdeploy.transport.fleet import SshFleet
from tfdeploy.transport.ssh import command, connect, keepalive


@pytest.fixture
def fleet() -> Iterator[SshFleet]:
    with SshFleet() as opened:
        yield opened


def test_single_word_is_script_and_several_words_are_argv(ssh_hosts: Any, fleet: SshFleet) -> None:
    session = fleet.session(ssh_hosts.host("n1").host)
    done = session.run(("echo $((6*7)); echo oops >&2; exit 3",))
    assert (done.exit_code, done.stdout, done.stderr) == (3, b"42\n", b"oops\n")
    odd = (
        "printf",
        "%s|",
        "a b",
        "$HOME",
        "it's",
        "x!y",
        "back\\slash",
        "new\nline\n",
        "*",
        "%d",
        "üñ",
        "~",
        "-n",
        "",
    )
    assert session.run(odd).stdout == b"|".join(word.encode() for word in odd[2:]) + b"|"


def test_output_larger_than_every_window(
    ssh_hosts: Any, fleet: SshFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = fleet.session(ssh_hosts.host("n1").host)
    done = session.run(("seq 900000; head -c 5000000 /dev/zero >&2",))
    assert done.stdout == b"".join(b"%d\n" % n for n in range(1, 900001))
    assert len(done.stderr) == 5_000_000
    assert session.run(("cat",)).stdout == b""
    monkeypatch.setattr("tfdeploy.transport.session.MAX_OUTPUT_BYTES", 1 << 20)
    with pytest.raises(HostFailed, match="more than"):
        session.run(("cat /dev/zero",))


def test_signal_is_not_exit_code_and_time_limit_is_kept(ssh_hosts: Any, fleet: SshFleet) -> None:
    session = fleet.session(ssh_hosts.host("n1").host)
    assert session.run(("kill -9 $$",)).exit_code is None
    with pytest.raises(HostFailed, match=r"0\.2 s"):
        session.run(("sleep 20",), timeout_s=0.2)


def test_unknown_host_key_is_refused_with_fingerprint(ssh_hosts: Any, fleet: SshFleet) -> None:
    sshd = ssh_hosts.host("n1", known=False)
    public = str(sshd.config.parent / "hostkey.pub")
    shown = subprocess.run(
        ["ssh-keygen", "-lf", public], capture_output=True, text=True, check=True
    )
    error = refused(fleet, sshd.host)
    assert shown.stdout.split()[1] in error.what
    assert error.next == "`tfdeploy trust --limit n1`"
    assert "Accepted" not in sshd.trace()


def test_changed_host_key_is_refused_with_both_keys_and_line(
    ssh_hosts: Any, fleet: SshFleet
) -> None:
    sshd, other = ssh_hosts.host("n1", known=False), ssh_hosts.host("n2")
    old = (other.config.parent / "hostkey.pub").read_text().split()[1]
    ssh_hosts.known.write_text(f"# one\n[127.0.0.1]:{sshd.port} ssh-ed25519 {old}\n")
    error = refused(fleet, sshd.host)
    assert error.what.count("SHA256:") == 2
    assert f"{ssh_hosts.known}:2" in error.what
    assert error.next and "tfdeploy trust --renew n1" in error.next


def test_closed_port_and_unknown_name_are_named(ssh_hosts: Any, fleet: SshFleet) -> None:
    sshd = ssh_hosts.host("n1")
    sshd.process.terminate()
    sshd.process.wait(120)
    assert "refuses connections" in refused(fleet, sshd.host).what
    places = {"address": "lab.yaml:3", "jump": "lab.yaml:4"}
    unknown = replace(sshd.host, address="no-such-name.invalid", places=places)
    error = refused(fleet, unknown)
    assert "cannot be resolved" in error.what
    without = "to go on without this host: --exclude n1"
    assert error.next == f"correct `address:` (lab.yaml:3); {without}"
    behind = replace(sshd.host, jump="no-such-name.invalid", places=places)
    assert refused(fleet, behind).next == f"correct `jump:` (lab.yaml:4); {without}"


def test_silent_garbage_and_endless_servers_are_given_up(
    ssh_hosts: Any, fleet: SshFleet, listener: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    host = ssh_hosts.host("n1").host
    monkeypatch.setattr(connect, "CONNECT_S", 1.0)
    watch = Stopwatch()
    assert (
        "says nothing within 1 s"
        in refused(fleet, replace(host, port=listener(lambda sock: None))).what
    )
    assert watch.seconds < 3

    def speak(sock: socket.socket) -> None:
        sock.sendall(b"HTTP/1.0 \x1b[31m400\r\n" * 200)

    assert "not an SSH server" in refused(fleet, replace(host, port=listener(speak))).what

    def flood(sock: socket.socket) -> None:
        while True:
            sock.sendall(b"x" * 65536)

    assert "not an SSH server" in refused(fleet, replace(host, port=listener(flood))).what

    def trickle(sock: socket.socket) -> None:
        def drip() -> None:
            for _ in range(100):
                sock.sendall(b"hello\r\n")
                time.sleep(0.1)

        threading.Thread(target=lambda: suppressed(drip), daemon=True).start()

    watch = Stopwatch()
    refused(fleet, replace(host, port=listener(trickle)))
    assert watch.seconds < 4


def suppressed(action: Callable[[], None]) -> None:
    try:
        action()
    except OSError:
        pass


def test_burst_beyond_max_startups_connects(ssh_hosts: Any) -> None:
    sshd = ssh_hosts.host("n1", "MaxStartups 2:50:4")
    hosts = tuple(replace(sshd.host, name=f"n{number}") for number in range(16))
    with SshFleet() as fleet:
        outcomes = fleet.each(hosts, lambda session: session.run(("true",)).exit_code)
    assert set(outcomes.values()) == {0}, outcomes


def test_jump_hosts_are_shared_and_checked_and_named(ssh_hosts: Any, fleet: SshFleet) -> None:
    jump, inner, other = ssh_hosts.host("jump"), ssh_hosts.host("inner"), ssh_hosts.host("other")
    jump_target = f"{jump.host.user}@127.0.0.1:{jump.port}"
    for sshd in (inner, other):
        assert (
            fleet.session(replace(sshd.host, jump=jump_target))
            .run(("echo $SSH_CONNECTION",))
            .exit_code
            == 0
        )
    assert jump.trace().count("Accepted publickey") == 1
    third = ssh_hosts.host("third")
    twice = f"{jump_target},{inner.host.user}@127.0.0.1:{inner.port}"
    assert fleet.session(replace(third.host, jump=twice)).run(("true",)).exit_code == 0
    dead = replace(third.host, name="dead", port=1, jump=jump_target)
    assert "cannot reach" in refused(fleet, dead).what
    stranger = ssh_hosts.host("stranger", known=False)
    assert (
        "not known"
        in refused(fleet, replace(third.host, name="s1", jump=f"x@127.0.0.1:{stranger.port}")).what
    )
    assert "not known" in refused(fleet, replace(stranger.host, jump=jump_target)).what


@pytest.mark.fault("10 a dead jump host")
def test_error_names_dead_jump_host_not_host_behind_it(
    ssh_hosts: Any, fleet: SshFleet, listener: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    jump, inner = ssh_hosts.host("jump"), ssh_hosts.host("inner")
    user = jump.host.user
    jump_target = f"{user}@127.0.0.1:{jump.port}"
    assert fleet.session(replace(inner.host, jump=jump_target)).is_alive
    sshd = inner.host
    mute = listener(lambda sock: None)
    for port, reason in ((1, "refuses connections"), (mute, "says nothing within 1 s")):
        # Only this connection, which must fail, gets the short timeout. A connection that succeeds
        # may take longer.
        with monkeypatch.context() as patch:
            patch.setattr(connect, "CONNECT_S", 1.0)
            message = refused(
                fleet, replace(sshd, name=f"n{port}", jump=f"{user}@127.0.0.1:{port}")
            ).what
        assert (
            message.startswith(f"the jump host {user}@127.0.0.1:{port} cannot be used: ")
            and reason in message
        )
        assert message.count("jump host") == 1
    message = refused(
        fleet, replace(sshd, name="second", jump=f"{jump_target},{user}@127.0.0.1:1")
    ).what
    assert message == f"the jump host {jump_target} cannot reach 127.0.0.1:1: Connect failed"


def test_lost_connection_is_unreachable_and_reconnects(ssh_hosts: Any, fleet: SshFleet) -> None:
    sshd = ssh_hosts.host("n1")
    session = fleet.session(sshd.host)
    with pytest.raises(HostUnreachable):
        session.run(("kill -9 $PPID; sleep 20",), timeout_s=20)
    assert fleet.session(sshd.host).run(("true",)).exit_code == 0


@pytest.mark.fault("10 a server that freezes")
def test_keepalive_detects_frozen_server(
    ssh_hosts: Any, fleet: SshFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keepalive, "EVERY_S", 0.1)
    monkeypatch.setattr(keepalive, "_thread", None)
    session = fleet.session(ssh_hosts.host("n1").host)
    server = int(session.run(("echo $PPID",)).stdout)
    monkeypatch.setattr(keepalive, "DEAD_AFTER_S", 1.4)
    watch = Stopwatch()
    os.kill(server, signal.SIGSTOP)
    try:
        with pytest.raises(HostUnreachable):
            session.run(("true",), timeout_s=20)
        assert watch.seconds < 10
    finally:
        os.kill(server, signal.SIGKILL)


@pytest.mark.parametrize("shell", ["csh", "tcsh", "fish", "zsh", "dash", "bash"])
def test_every_login_shell_gets_same_words(shell: str) -> None:
    import shutil

    from tfdeploy.transport.quoting import command_line

    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"no {shell} here")
    words = (
        "printf",
        "%s|",
        "a b",
        "$HOME",
        "it's",
        "x!y!!",
        "back\\slash",
        "new\nline",
        "\\n",
        "*",
        "%",
        "^",
        "=ls",
        "~",
        "",
    )
    line = command_line(words)
    done = subprocess.run([program, "-c", line], capture_output=True, check=True)
    assert done.stdout == b"|".join(word.encode() for word in words[2:]) + b"|"
    done = subprocess.run(
        [program, "-c", command_line(("echo $((1+1)); exit 4",))], capture_output=True, check=False
    )
    assert (done.returncode, done.stdout) == (4, b"2\n")


class MuteTransport(paramiko.Transport):
    """The server side of a connection, like an sshd that answers keepalives but never answers a
    channel request."""

    _channel_handler_table: ClassVar[dict[int, Any]] = {
        **paramiko.Transport._channel_handler_table,  # type: ignore[attr-defined]
        MSG_CHANNEL_REQUEST: lambda self, message: None,
    }


class Welcome(paramiko.ServerInterface):
    def check_auth_publickey(self, username: str, key: Any) -> int:
        return 0  # paramiko.AUTH_SUCCESSFUL

    def get_allowed_auths(self, username: str) -> str:
        return "publickey"

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return 0  # paramiko.OPEN_SUCCEEDED


@pytest.mark.fault("59 an sshd that lets us in and never starts a command")
def test_sshd_that_answers_no_request_is_given_up(
    ssh_hosts: Any, listener: Callable[..., int], fleet: SshFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "START_S", 0.5)
    good = ssh_hosts.host("n1")
    key = paramiko.Ed25519Key(filename=str(good.config.parent / "hostkey"))
    servers: list[paramiko.Transport] = []

    def serve(sock: socket.socket) -> None:
        servers.append(MuteTransport(sock.dup()))
        servers[-1].add_server_key(key)
        servers[-1].start_server(event=threading.Event(), server=Welcome())

    port = listener(serve)
    with ssh_hosts.known.open("a") as lines:
        lines.write(f"[127.0.0.1]:{port} {key.get_name()} {key.get_base64()}\n")
    session = fleet.session(replace(good.host, port=port))
    try:
        for ask in (session.agent, lambda: session.run(("true",))):
            with pytest.raises(HostFailed, match=r"did not start a command within 0\.5 s"):
                ask()
    finally:
        for server in servers:
            server.close()
