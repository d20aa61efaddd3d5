"""The session's contract: what it runs, whom it trusts, and one clear cause for everything that fails."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import paramiko
import pytest
from paramiko.common import MSG_CHANNEL_REQUEST

from support.waiting import wait_for
from tfdeploy.errors import HostFailed, HostUnreachable
from tfdeploy.transport.agent import bootstrap
from tfdeploy.transport.fleet import SshFleet
from tfdeploy.transport.ssh import connect, keepalive, ssh_config
from tfdeploy.transport.ssh.argv import ssh_argv
from tfdeploy.transport.ssh.target import resolve


@pytest.fixture
def fleet() -> Iterator[SshFleet]:
    with SshFleet() as opened:
        yield opened


def refused(fleet: SshFleet, host: Any) -> HostUnreachable:
    with pytest.raises(HostUnreachable) as caught:
        fleet.session(host)
    assert caught.value.where == host.name
    assert caught.value.exit_code == 4
    return caught.value


def test_one_word_is_a_script_and_several_are_argv(yard: Any, fleet: SshFleet) -> None:
    session = fleet.session(yard.host("n1").host)
    done = session.run(("echo $((6*7)); echo oops >&2; exit 3",))
    assert (done.exit_code, done.stdout, done.stderr) == (3, b"42\n", b"oops\n")
    odd = ("printf", "%s|", "a b", "$HOME", "it's", "x!y", "back\\slash", "new\nline\n", "*", "%d", "üñ", "~", "-n", "")
    assert session.run(odd).stdout == b"|".join(word.encode() for word in odd[2:]) + b"|"


def test_input_and_output_larger_than_every_window(yard: Any, fleet: SshFleet) -> None:
    session = fleet.session(yard.host("n1").host)
    data = os.urandom(1 << 20) * 6
    done = session.run(("cat; head -c 5000000 /dev/zero >&2",), stdin=data)
    assert done.stdout == data
    assert len(done.stderr) == 5_000_000
    assert session.run(("cat",)).stdout == b""
    with pytest.raises(HostFailed, match="more than"):
        session.run(("cat /dev/zero",), max_bytes=1 << 20)


def test_a_signal_is_no_exit_code_and_a_limit_is_kept(yard: Any, fleet: SshFleet) -> None:
    session = fleet.session(yard.host("n1").host)
    assert session.run(("kill -9 $$",)).exit_code is None
    with pytest.raises(HostFailed, match=r"0\.2 s"):
        session.run(("sleep 20",), timeout_s=0.2)


def test_an_unknown_host_key_is_refused_with_its_fingerprint(yard: Any, fleet: SshFleet) -> None:
    sshd = yard.host("n1", known=False)
    public = str(sshd.config.parent / "hostkey.pub")
    shown = subprocess.run(["ssh-keygen", "-lf", public], capture_output=True, text=True, check=True)
    error = refused(fleet, sshd.host)
    assert shown.stdout.split()[1] in error.what
    assert error.next == "tfdeploy trust --limit n1"
    assert "Accepted" not in sshd.trace()


def test_a_changed_host_key_is_refused_with_both_and_the_line(yard: Any, fleet: SshFleet) -> None:
    sshd, other = yard.host("n1", known=False), yard.host("n2")
    old = (other.config.parent / "hostkey.pub").read_text().split()[1]
    yard.known.write_text(f"# one\n[127.0.0.1]:{sshd.port} ssh-ed25519 {old}\n")
    error = refused(fleet, sshd.host)
    assert error.what.count("SHA256:") == 2
    assert f"{yard.known}:2" in error.what
    assert error.next and "ssh-keygen" in error.next


def test_a_wrong_user_or_key_is_one_clear_cause(yard: Any, fleet: SshFleet) -> None:
    sshd = yard.host("n1")
    assert "user nobody-here" in refused(fleet, replace(sshd.host, user="nobody-here")).what
    subprocess.run(["ssh-keygen", "-q", "-t", "rsa", "-N", "", "-f", str(yard.root / "other")], check=True)
    error = refused(fleet, replace(sshd.host, identity_file=str(yard.root / "other")))
    assert "refused the key" in error.what
    assert str(yard.root / "other") in error.what


def test_key_files_that_are_missing_locked_or_garbage_are_named(yard: Any, fleet: SshFleet) -> None:
    sshd = yard.host("n1")
    missing = refused(fleet, replace(sshd.host, identity_file=str(yard.root / "none")))
    assert f"{yard.root / 'none'} cannot be read" in missing.what
    for kind, form in (("ed25519", ()), ("rsa", ("-m", "PEM"))):
        locked = yard.root / f"locked-{kind}"
        subprocess.run(["ssh-keygen", "-q", "-t", kind, *form, "-N", "secret", "-f", str(locked)], check=True)
        assert "encrypted" in refused(fleet, replace(sshd.host, identity_file=str(locked))).what
    garbage = yard.root / "garbage"
    garbage.write_bytes(b"\xff\x00nothing")
    assert "not a private key" in refused(fleet, replace(sshd.host, identity_file=str(garbage))).what
    assert "Failed" not in sshd.trace()


@contextlib.contextmanager
def agent_on(place: Path) -> Iterator[dict[str, str]]:
    """A real ssh-agent, and the environment in which ssh-add talks to it."""
    process = subprocess.Popen(["ssh-agent", "-D", "-a", str(place)], stdout=subprocess.DEVNULL)
    wait_for(place.exists, 5, "the ssh-agent listens")
    try:
        yield {**os.environ, "SSH_AUTH_SOCK": str(place)}
    finally:
        process.terminate()
        process.wait(5)


@pytest.fixture
def ssh_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with agent_on(tmp_path / "agent") as env:
        monkeypatch.setenv("SSH_AUTH_SOCK", env["SSH_AUTH_SOCK"])
        yield


@pytest.fixture
def configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Writes the `~/.ssh/config` of an operator who has nothing else."""
    home = tmp_path / "operator"
    (home / ".ssh").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))

    def write(text: str) -> None:
        (home / ".ssh/config").write_text(text)
        ssh_config.ask.cache_clear()
        ssh_config._matters.cache_clear()

    return write


def pushes(target: Any, folder: Path) -> int:
    """How rsync's ssh ends for that target."""
    words = [*ssh_argv(target), "--", target.name, "true"]
    return subprocess.run(words, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, check=False).returncode


def test_identity_agent_is_asked_by_sessions_and_by_rsync_s_ssh_alike(
    yard: Any, fleet: SshFleet, ssh_agent: None, tmp_path: Path, configured: Callable[[str], None]
) -> None:
    host = replace(yard.host("n1").host, identity_file=None)
    with agent_on(tmp_path / "other agent") as env:
        subprocess.run(["ssh-add", "-q", str(yard.key)], check=True, env=env, stderr=subprocess.DEVNULL)
        configured(f'Host *\n  IdentityAgent "{tmp_path}/other agent"\n')
        session = fleet.session(host)
        assert session.run(("true",)).exit_code == 0
        assert pushes(session.target, tmp_path) == 0
        subprocess.run(["ssh-add", "-q", str(yard.key)], check=True, stderr=subprocess.DEVNULL)  # the usual one holds it too
        configured("Host *\n  IdentityAgent none\n")
        assert "no key to log in with" in refused(fleet, replace(host, name="n2")).what
        assert pushes(resolve(host), tmp_path) == 255


def test_a_certificate_of_the_configuration_is_shown_for_files_and_for_the_agent(
    yard: Any, fleet: SshFleet, ssh_agent: None, tmp_path: Path, configured: Callable[[str], None]
) -> None:
    keys = [yard.root / name for name in ("ca", "own")]
    for key in keys:
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    ca, own = keys
    user = yard.host("any").host.user
    subprocess.run(["ssh-keygen", "-q", "-s", str(ca), "-I", "me", "-n", user, f"{own}.pub"], check=True)
    (yard.root / "own-cert.pub").rename(tmp_path / "shown")
    host = yard.host("n1", f"TrustedUserCAKeys {ca}.pub", "AuthorizedKeysFile none").host
    configured(f"Host *\n  CertificateFile {tmp_path}/shown\n")
    session = fleet.session(replace(host, identity_file=str(own)))
    assert pushes(session.target, tmp_path) == 0
    subprocess.run(["ssh-add", "-q", str(own)], check=True, stderr=subprocess.DEVNULL)
    own.unlink()
    assert fleet.session(replace(host, name="n2", identity_file=f"{own}.pub")).alive
    configured("")
    assert "refused the key" in refused(fleet, replace(host, name="n3", identity_file=f"{own}.pub")).what


def test_an_agent_that_refuses_to_sign_is_named(
    yard: Any, fleet: SshFleet, ssh_agent: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = replace(yard.host("n1").host, identity_file=f"{yard.key}.pub")
    monkeypatch.setenv("SSH_ASKPASS", "/bin/false")
    subprocess.run(["ssh-add", "-q", "-c", str(yard.key)], check=True, stderr=subprocess.DEVNULL)  # each use is asked for
    assert "refused to sign" in refused(fleet, host).what


@pytest.mark.fault("11 a second factor")
@pytest.mark.parametrize("second", ["keyboard-interactive", "password"])
def test_a_second_factor_is_named_at_once(yard: Any, fleet: SshFleet, second: str) -> None:
    allowed = ("KbdInteractiveAuthentication yes", "PasswordAuthentication yes")
    host = yard.host("n1", f"AuthenticationMethods publickey,{second}", *allowed).host
    began = time.monotonic()
    error = refused(fleet, host)
    assert f"took the key and wants a second factor ({second})" in error.what
    assert error.next and "AuthenticationMethods publickey" in error.next
    assert time.monotonic() - began < 5


def test_two_keys_are_no_second_factor(yard: Any, fleet: SshFleet, ssh_agent: None) -> None:
    other = yard.root / "other"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(other)], check=True)
    both = yard.root / "both"
    both.write_text((yard.root / "key.pub").read_text() + (yard.root / "other.pub").read_text())
    host = yard.host("n1", "AuthenticationMethods publickey,publickey", f"AuthorizedKeysFile {both}").host
    assert "wants a second factor (publickey)" in refused(fleet, host).what
    for key in (yard.key, other):
        subprocess.run(["ssh-add", "-q", str(key)], check=True, stderr=subprocess.DEVNULL)
    assert fleet.session(replace(host, name="n2", identity_file=None)).alive


def test_the_agent_holds_the_key_of_a_locked_file_among_too_many(yard: Any, fleet: SshFleet, ssh_agent: None) -> None:
    sshd = yard.host("n1")
    for number in range(9):
        key = yard.root / f"many-{number}"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
        subprocess.run(["ssh-add", "-q", str(key)], check=True, stderr=subprocess.DEVNULL)
    subprocess.run(["ssh-add", "-q", str(yard.key)], check=True, stderr=subprocess.DEVNULL)
    subprocess.run(["ssh-keygen", "-q", "-p", "-N", "secret", "-f", str(yard.key)], check=True, stdout=subprocess.DEVNULL)
    assert fleet.session(sshd.host).run(("true",)).exit_code == 0
    other = yard.root / "many-0"
    subprocess.run(["ssh-add", "-q", "-d", str(yard.key)], check=True, stderr=subprocess.DEVNULL)
    assert "refused the key" in refused(fleet, replace(sshd.host, name="n2", identity_file=str(other))).what


def test_nobody_listens_no_such_name(yard: Any, fleet: SshFleet) -> None:
    sshd = yard.host("n1")
    sshd.process.terminate()
    sshd.process.wait(10)
    assert "refuses connections" in refused(fleet, sshd.host).what
    assert "cannot be resolved" in refused(fleet, replace(sshd.host, address="no-such-name.invalid")).what


def test_silence_garbage_and_endless_banners_are_bounded(
    yard: Any, fleet: SshFleet, listener: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    host = yard.host("n1").host
    monkeypatch.setattr(connect, "CONNECT_S", 1.0)
    began = time.monotonic()
    assert "says nothing within 1 s" in refused(fleet, replace(host, port=listener(lambda sock: None))).what
    assert time.monotonic() - began < 3

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

    began = time.monotonic()
    refused(fleet, replace(host, port=listener(trickle)))
    assert time.monotonic() - began < 4


def suppressed(action: Callable[[], None]) -> None:
    try:
        action()
    except OSError:
        pass


def test_a_burst_beyond_max_startups_gets_in(yard: Any) -> None:
    sshd = yard.host("n1", "MaxStartups 2:50:4")
    hosts = tuple(replace(sshd.host, name=f"n{number}") for number in range(16))
    with SshFleet() as fleet:
        found = fleet.each(hosts, lambda session: session.run(("true",)).exit_code)
    assert set(found.values()) == {0}, found


def test_jump_hosts_are_shared_checked_and_named(yard: Any, fleet: SshFleet) -> None:
    jump, inner, other = yard.host("jump"), yard.host("inner"), yard.host("other")
    way = f"{jump.host.user}@127.0.0.1:{jump.port}"
    for sshd in (inner, other):
        assert fleet.session(replace(sshd.host, jump=way)).run(("echo $SSH_CONNECTION",)).exit_code == 0
    assert jump.trace().count("Accepted publickey") == 1
    third = yard.host("third")
    twice = f"{way},{inner.host.user}@127.0.0.1:{inner.port}"
    assert fleet.session(replace(third.host, jump=twice)).run(("true",)).exit_code == 0
    dead = replace(third.host, name="dead", port=1, jump=way)
    assert "cannot reach" in refused(fleet, dead).what
    stranger = yard.host("stranger", known=False)
    assert "not known" in refused(fleet, replace(third.host, name="s1", jump=f"x@127.0.0.1:{stranger.port}")).what
    assert "not known" in refused(fleet, replace(stranger.host, jump=way)).what


@pytest.mark.fault("10 a dead jump host")
def test_a_dead_jump_host_is_named_and_not_the_host_behind_it(
    yard: Any, fleet: SshFleet, listener: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connect, "CONNECT_S", 1.0)
    jump, inner = yard.host("jump"), yard.host("inner")
    user = jump.host.user
    way = f"{user}@127.0.0.1:{jump.port}"
    assert fleet.session(replace(inner.host, jump=way)).alive
    sshd = inner.host
    mute = listener(lambda sock: None)
    for port, why in ((1, "refuses connections"), (mute, "says nothing within 1 s")):
        said = refused(fleet, replace(sshd, name=f"n{port}", jump=f"{user}@127.0.0.1:{port}")).what
        assert said.startswith(f"the jump host {user}@127.0.0.1:{port} cannot be used: ") and why in said
        assert said.count("jump host") == 1
    said = refused(fleet, replace(sshd, name="second", jump=f"{way},{user}@127.0.0.1:1")).what
    assert said == f"the jump host {way} cannot reach 127.0.0.1:1: Connect failed"


def test_a_connection_that_dies_is_unreachable_and_comes_back(yard: Any, fleet: SshFleet) -> None:
    sshd = yard.host("n1")
    session = fleet.session(sshd.host)
    with pytest.raises(HostUnreachable):
        session.run(("kill -9 $PPID; sleep 20",), timeout_s=20)
    assert fleet.session(sshd.host).run(("true",)).exit_code == 0


@pytest.mark.fault("10 a server that freezes")
def test_a_server_that_freezes_is_found_by_the_pulse(yard: Any, fleet: SshFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keepalive, "EVERY_S", 0.1)
    monkeypatch.setattr(keepalive, "DEAD_AFTER_S", 1.4)
    monkeypatch.setattr(keepalive, "_thread", None)
    session = fleet.session(yard.host("n1").host)
    server = int(session.run(("echo $PPID",)).stdout)
    began = time.monotonic()
    os.kill(server, signal.SIGSTOP)
    try:
        with pytest.raises(HostUnreachable):
            session.run(("true",), timeout_s=20)
        assert time.monotonic() - began < 10
    finally:
        os.kill(server, signal.SIGKILL)


@pytest.mark.parametrize("shell", ["csh", "tcsh", "fish", "zsh", "dash", "bash"])
def test_every_login_shell_reads_it_alike(shell: str) -> None:
    import shutil

    from tfdeploy.transport.quoting import command_line

    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"no {shell} here")
    words = ("printf", "%s|", "a b", "$HOME", "it's", "x!y!!", "back\\slash", "new\nline", "\\n", "*", "%", "^", "=ls", "~", "")
    line = command_line(words)
    done = subprocess.run([program, "-c", line], capture_output=True, check=True)
    assert done.stdout == b"|".join(word.encode() for word in words[2:]) + b"|"
    done = subprocess.run([program, "-c", command_line(("echo $((1+1)); exit 4",))], capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (4, b"2\n")


class MuteTransport(paramiko.Transport):
    """Of an sshd that answers all that keeps a connection alive, and no request of a channel."""

    _channel_handler_table: ClassVar[dict[int, Any]] = {
        **paramiko.Transport._channel_handler_table,  # type: ignore[attr-defined]
        MSG_CHANNEL_REQUEST: lambda self, message: None,
    }


class Welcome(paramiko.ServerInterface):
    def check_auth_publickey(self, username: str, key: Any) -> int:
        return 0  # AUTH_SUCCESSFUL

    def get_allowed_auths(self, username: str) -> str:
        return "publickey"

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return 0  # OPEN_SUCCEEDED


@pytest.mark.fault("59 an sshd that lets us in and never starts a command")
def test_an_sshd_that_answers_no_request_is_given_up(
    yard: Any, listener: Callable[..., int], fleet: SshFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bootstrap, "START_S", 0.5)
    good = yard.host("n1")
    key = paramiko.Ed25519Key(filename=str(good.config.parent / "hostkey"))
    servers: list[paramiko.Transport] = []

    def serve(sock: socket.socket) -> None:
        servers.append(MuteTransport(sock.dup()))
        servers[-1].add_server_key(key)
        servers[-1].start_server(event=threading.Event(), server=Welcome())

    port = listener(serve)
    with yard.known.open("a") as lines:
        lines.write(f"[127.0.0.1]:{port} {key.get_name()} {key.get_base64()}\n")
    session = fleet.session(replace(good.host, port=port))
    try:
        for ask in (session.agent, lambda: session.run(("true",))):
            with pytest.raises(HostFailed, match=r"did not start a command within 0\.5 s"):
                ask()
    finally:
        for server in servers:
            server.close()
