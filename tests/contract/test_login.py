"""Test which logins succeed, with key files, agents, certificates and second factors.

The error of a refused login names exactly one cause.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.lab.sessions import refused
from support.lab.sshd import sshd_knows
from support.stopwatch import Stopwatch
from support.waiting import wait_for
from tfdeploy.transport.fleet import SshFleet
from tfdeploy.transport.ssh import ssh_config
from tfdeploy.transport.ssh.argv import ssh_argv
from tfdeploy.transport.ssh.target import resolve


@pytest.fixture
def fleet() -> Iterator[SshFleet]:
    with SshFleet() as opened:
        yield opened


def test_wrong_user_or_key_gives_one_cause(ssh_hosts: Any, fleet: SshFleet) -> None:
    sshd = ssh_hosts.host("n1")
    assert "user nobody-here" in refused(fleet, replace(sshd.host, user="nobody-here")).what
    closed = replace(sshd.host, name="n2", port=9)
    assert (refused(fleet, closed).next or "").endswith(
        "; to go on without this host: --exclude n2"
    )
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "rsa", "-N", "", "-f", str(ssh_hosts.root / "other")], check=True
    )
    error = refused(fleet, replace(sshd.host, identity_file=str(ssh_hosts.root / "other")))
    assert "refused the key" in error.what
    assert str(ssh_hosts.root / "other") in error.what


def test_suggested_command_names_refused_key_and_setting(ssh_hosts: Any, fleet: SshFleet) -> None:
    sshd, key = ssh_hosts.host("n1"), ssh_hosts.root / "own key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    host = replace(
        sshd.host,
        identity_file=str(key),
        places={"user": "lab.yaml:2", "identity_file": "lab.yaml:3"},
    )
    login = f"-p {host.port} {resolve(host).user}@{host.address}"
    known = "set `identity_file:` (lab.yaml:3) to a key that the host accepts"
    assert refused(fleet, host).next == (
        f"if there is no user {resolve(host).user} there, set `user:` (lab.yaml:2); otherwise "
        f"`ssh-copy-id -i '{key}.pub' {login}`, or {known}"
    )
    key.with_name("own key.pub").unlink()
    with SshFleet() as second_fleet:
        suggestion = refused(second_fleet, replace(host, name="n2")).next or ""
    assert suggestion.endswith(f"otherwise `ssh-copy-id {login}`, or {known}")
    missing = replace(host, name="n3", identity_file=str(ssh_hosts.root / "none"))
    cure = "or load a key into an agent with `ssh-add`"
    assert (
        refused(fleet, missing).next == f"correct or remove `identity_file:` (lab.yaml:3), {cure}"
    )
    unnamed = replace(missing, name="n4", places={}, source="lab.yaml:9")
    assert refused(fleet, unnamed).next == f"set `identity_file:` (lab.yaml), {cure}"


def test_unusable_key_files_are_named(ssh_hosts: Any, fleet: SshFleet) -> None:
    sshd = ssh_hosts.host("n1")
    missing = refused(fleet, replace(sshd.host, identity_file=str(ssh_hosts.root / "none")))
    assert f"{ssh_hosts.root / 'none'} cannot be read" in missing.what
    for kind, form in (("ed25519", ()), ("rsa", ("-m", "PEM"))):
        locked = ssh_hosts.root / f"locked-{kind}"
        subprocess.run(
            ["ssh-keygen", "-q", "-t", kind, *form, "-N", "secret", "-f", str(locked)], check=True
        )
        assert "encrypted" in refused(fleet, replace(sshd.host, identity_file=str(locked))).what
    garbage = ssh_hosts.root / "garbage"
    garbage.write_bytes(b"\xff\x00nothing")
    assert (
        "not a private key" in refused(fleet, replace(sshd.host, identity_file=str(garbage))).what
    )
    assert "Failed" not in sshd.trace()


@contextlib.contextmanager
def agent_on(place: Path) -> Iterator[dict[str, str]]:
    """Start a real ssh-agent on the socket `place`, and yield the environment with which ssh-add
    finds it.
    """
    process = subprocess.Popen(["ssh-agent", "-D", "-a", str(place)], stdout=subprocess.DEVNULL)
    wait_for(place.exists, 5, "the ssh-agent listens")
    try:
        yield {**os.environ, "SSH_AUTH_SOCK": str(place)}
    finally:
        process.terminate()
        process.wait(120)


@pytest.fixture
def ssh_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with agent_on(tmp_path / "agent") as env:
        monkeypatch.setenv("SSH_AUTH_SOCK", env["SSH_AUTH_SOCK"])
        yield


@pytest.fixture
def configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return a function that writes `~/.ssh/config` for the operator. The operator has no other
    configuration of ssh.
    """
    home = tmp_path / "operator"
    (home / ".ssh").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))

    def write(text: str) -> None:
        (home / ".ssh/config").write_text(text)
        ssh_config.read_settings.cache_clear()
        ssh_config._has_relevant_keyword.cache_clear()

    return write


def pushes(target: Any, folder: Path) -> int:
    """Run `true` on the target with the ssh command that rsync would use. Return its exit code."""
    words = [*ssh_argv(target), "--", target.name, "true"]
    return subprocess.run(
        words, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, check=False
    ).returncode


def test_session_and_rsync_use_identity_agent(
    ssh_hosts: Any,
    fleet: SshFleet,
    ssh_agent: None,
    tmp_path: Path,
    configured: Callable[[str], None],
) -> None:
    host = replace(ssh_hosts.host("n1").host, identity_file=None)
    with agent_on(tmp_path / "other agent") as env:
        subprocess.run(
            ["ssh-add", "-q", str(ssh_hosts.key)], check=True, env=env, stderr=subprocess.DEVNULL
        )
        configured(f'Host *\n  IdentityAgent "{tmp_path}/other agent"\n')
        session = fleet.session(host)
        assert session.run(("true",)).exit_code == 0
        assert pushes(session.target, tmp_path) == 0
        # The default agent has the key too, but `IdentityAgent none` forbids the use of any agent.
        subprocess.run(["ssh-add", "-q", str(ssh_hosts.key)], check=True, stderr=subprocess.DEVNULL)
        configured("Host *\n  IdentityAgent none\n")
        assert "no key to log in with" in refused(fleet, replace(host, name="n2")).what
        assert pushes(resolve(host), tmp_path) == 255


def test_configured_certificate_is_sent_for_key_files_and_agent(
    ssh_hosts: Any,
    fleet: SshFleet,
    ssh_agent: None,
    tmp_path: Path,
    configured: Callable[[str], None],
) -> None:
    keys = [ssh_hosts.root / name for name in ("ca", "own")]
    for key in keys:
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    ca, user_key = keys
    user = ssh_hosts.host("any").host.user
    subprocess.run(
        ["ssh-keygen", "-q", "-s", str(ca), "-I", "me", "-n", user, f"{user_key}.pub"], check=True
    )
    (ssh_hosts.root / "own-cert.pub").rename(tmp_path / "shown")
    host = ssh_hosts.host("n1", f"TrustedUserCAKeys {ca}.pub", "AuthorizedKeysFile none").host
    configured(f"Host *\n  CertificateFile {tmp_path}/shown\n")
    session = fleet.session(replace(host, identity_file=str(user_key)))
    assert pushes(session.target, tmp_path) == 0
    subprocess.run(["ssh-add", "-q", str(user_key)], check=True, stderr=subprocess.DEVNULL)
    user_key.unlink()
    assert fleet.session(replace(host, name="n2", identity_file=f"{user_key}.pub")).is_alive
    configured("")
    assert (
        "refused the key"
        in refused(fleet, replace(host, name="n3", identity_file=f"{user_key}.pub")).what
    )


def test_expired_certificate_is_named_and_not_sent(
    ssh_hosts: Any, fleet: SshFleet, tmp_path: Path, configured: Callable[[str], None]
) -> None:
    sshd = ssh_hosts.host("n1", "LogLevel VERBOSE")
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(ssh_hosts.root / "ca")],
        check=True,
    )
    sign = [
        "ssh-keygen",
        "-q",
        "-s",
        str(ssh_hosts.root / "ca"),
        "-I",
        "me",
        "-V",
        "20200101:20210101",
        f"{ssh_hosts.key}.pub",
    ]
    subprocess.run(sign, check=True)
    expired = ssh_hosts.root / "key-cert.pub"
    configured(f"Host *\n  CertificateFile {expired}\n")
    assert fleet.session(sshd.host).is_alive
    assert "Failed publickey" not in sshd.trace() and "ED25519-CERT" not in sshd.trace()
    other = ssh_hosts.host("n2", "AuthorizedKeysFile none")
    assert f"certificate {expired} has expired" in refused(fleet, other.host).what


def test_key_is_sent_alone_if_certificate_is_unusable(
    ssh_hosts: Any, fleet: SshFleet, configured: Callable[[str], None]
) -> None:
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(ssh_hosts.root / "ca")],
        check=True,
    )
    subprocess.run(
        [
            "ssh-keygen",
            "-q",
            "-s",
            str(ssh_hosts.root / "ca"),
            "-I",
            "me",
            "-n",
            "other",
            f"{ssh_hosts.key}.pub",
        ],
        check=True,
    )
    configured(f"Host *\n  CertificateFile {ssh_hosts.root / 'key-cert.pub'}\n")
    assert fleet.session(ssh_hosts.host("n1").host).is_alive


def test_keys_of_rejected_kinds_are_not_offered(
    ssh_hosts: Any, fleet: SshFleet, ssh_agent: None
) -> None:
    for kind in ("rsa", "ecdsa"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", kind, "-N", "", "-f", str(ssh_hosts.root / kind)], check=True
        )
        subprocess.run(
            ["ssh-add", "-q", str(ssh_hosts.root / kind)], check=True, stderr=subprocess.DEVNULL
        )
    subprocess.run(["ssh-add", "-q", str(ssh_hosts.key)], check=True, stderr=subprocess.DEVNULL)
    sshd = ssh_hosts.host("n1", "LogLevel VERBOSE", "PubkeyAcceptedAlgorithms ssh-ed25519")
    assert fleet.session(replace(sshd.host, identity_file=None)).is_alive
    assert "Failed publickey" not in sshd.trace()


@pytest.mark.skipif(
    not sshd_knows("RefuseConnection no"),
    reason="this sshd does not report the kinds of key that it accepts",
)
def test_key_of_rejected_kind_is_named_and_not_offered(ssh_hosts: Any, fleet: SshFleet) -> None:
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "rsa", "-N", "", "-f", str(ssh_hosts.root / "rsa")], check=True
    )
    sshd = ssh_hosts.host("n1", "LogLevel VERBOSE", "PubkeyAcceptedAlgorithms ssh-ed25519")
    error = refused(fleet, replace(sshd.host, identity_file=str(ssh_hosts.root / "rsa")))
    assert "takes no ssh-rsa keys (PubkeyAcceptedAlgorithms)" in error.what


def test_agent_that_refuses_to_sign_is_named(
    ssh_hosts: Any, fleet: SshFleet, ssh_agent: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = replace(ssh_hosts.host("n1").host, identity_file=f"{ssh_hosts.key}.pub")
    monkeypatch.setenv("SSH_ASKPASS", "/bin/false")
    # With ssh-add -c, the agent asks the user before each use of the key.
    subprocess.run(
        ["ssh-add", "-q", "-c", str(ssh_hosts.key)], check=True, stderr=subprocess.DEVNULL
    )
    assert "refused to sign" in refused(fleet, host).what


@pytest.mark.fault("11 a second factor")
@pytest.mark.parametrize("second", ["keyboard-interactive", "password"])
def test_required_second_factor_is_named_immediately(
    ssh_hosts: Any, fleet: SshFleet, second: str
) -> None:
    allowed = ("KbdInteractiveAuthentication yes", "PasswordAuthentication yes")
    host = ssh_hosts.host("n1", f"AuthenticationMethods publickey,{second}", *allowed).host
    watch = Stopwatch()
    error = refused(fleet, host)
    assert f"accepted the key, but wants a second factor ({second})" in error.what
    assert error.next and "AuthenticationMethods publickey" in error.next
    assert watch.seconds < 5


def test_two_keys_do_not_count_as_second_factor(
    ssh_hosts: Any, fleet: SshFleet, ssh_agent: None
) -> None:
    other = ssh_hosts.root / "other"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(other)], check=True)
    both_keys = ssh_hosts.root / "both"
    both_keys.write_text(
        (ssh_hosts.root / "key.pub").read_text() + (ssh_hosts.root / "other.pub").read_text()
    )
    host = ssh_hosts.host(
        "n1", "AuthenticationMethods publickey,publickey", f"AuthorizedKeysFile {both_keys}"
    ).host
    assert "wants a second factor (publickey)" in refused(fleet, host).what
    for key in (ssh_hosts.key, other):
        subprocess.run(["ssh-add", "-q", str(key)], check=True, stderr=subprocess.DEVNULL)
    assert fleet.session(replace(host, name="n2", identity_file=None)).is_alive


def test_key_of_locked_file_is_used_among_many_agent_keys(
    ssh_hosts: Any, fleet: SshFleet, ssh_agent: None
) -> None:
    sshd = ssh_hosts.host("n1")
    for number in range(9):
        key = ssh_hosts.root / f"many-{number}"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
        subprocess.run(["ssh-add", "-q", str(key)], check=True, stderr=subprocess.DEVNULL)
    subprocess.run(["ssh-add", "-q", str(ssh_hosts.key)], check=True, stderr=subprocess.DEVNULL)
    subprocess.run(
        ["ssh-keygen", "-q", "-p", "-N", "secret", "-f", str(ssh_hosts.key)],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    assert fleet.session(sshd.host).run(("true",)).exit_code == 0
    other = ssh_hosts.root / "many-0"
    subprocess.run(
        ["ssh-add", "-q", "-d", str(ssh_hosts.key)], check=True, stderr=subprocess.DEVNULL
    )
    assert (
        "refused the key"
        in refused(fleet, replace(sshd.host, name="n2", identity_file=str(other))).what
    )
