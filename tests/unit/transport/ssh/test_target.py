"""Test where each setting of an ssh target comes from: from the inventory, or else from ssh's
configuration, or else from ssh's defaults.
"""

from __future__ import annotations

import os
import pwd
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tfdeploy.errors import ConfigError
from tfdeploy.model.inventory import Host
from tfdeploy.transport.ssh import ssh_config
from tfdeploy.transport.ssh.argv import ssh_argv
from tfdeploy.transport.ssh.target import Target, parse_jump, resolve

needs_ssh = pytest.mark.skipif(shutil.which("ssh") is None, reason="needs the OpenSSH client")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / ".ssh").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(ssh_config, "SYSTEM_CONFIG", str(tmp_path / "none"))
    ssh_config.read_settings.cache_clear()
    ssh_config._has_relevant_keyword.cache_clear()
    return tmp_path


@pytest.fixture
def configured(home: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        (home / ".ssh/config").write_text(text)
        return home

    return write


def test_defaults_of_openssh_apply_without_configuration(home: Path) -> None:
    (home / ".ssh/id_rsa").write_text("")
    target = resolve(Host(name="n1", address="192.0.2.1", user="ml"))
    assert (target.hostname, target.port, target.user) == ("192.0.2.1", 22, "ml")
    assert target.identity_files == (str(home / ".ssh/id_rsa"),)
    assert target.user_known_hosts[0] == str(home / ".ssh/known_hosts")
    assert not target.identities_only
    assert target.known_hosts_name == "192.0.2.1"


def test_inventory_is_expanded_and_takes_precedence(home: Path) -> None:
    target = resolve(
        Host(
            name="n1",
            address="Node.Example",
            port=2200,
            user="ml",
            identity_file="~/k",
            known_hosts="~/kh",
        )
    )
    assert target.identity_files == (str(home / "k"),)
    assert target.identities_only
    assert target.user_known_hosts == (str(home / "kh"),)
    assert target.known_hosts_name == "[node.example]:2200"


@needs_ssh
def test_configuration_writable_by_others_is_refused(
    configured: Callable[[str], Path],
) -> None:
    """Test a configuration file of ssh to which other users can write.

    In this test HOME differs from the home folder in the password database. So tfdeploy passes the
    name of the file to ssh, and then ssh does not check the file's mode.
    """
    file = configured("Host n1\n  ProxyCommand touch /nowhere\n") / ".ssh/config"
    file.chmod(0o666)
    with pytest.raises(ConfigError, match="by everybody") as caught:
        resolve(Host(name="n1", address="n1", user="ml"))
    assert caught.value.next == f"`chmod o-w {file}`"


@needs_ssh
def test_ssh_configuration_with_include_completes_inventory(
    configured: Callable[[str], Path],
) -> None:
    home = configured(
        "Include more\nHost n1\n  HostName 192.0.2.9\n  Port 2222\n  HostKeyAlias alias\n  "
        "ProxyJump me@gate:2022\n"
    )
    (home / ".ssh/more").write_text(
        "Host n1\n  User fromconfig\n  IdentityFile ~/.ssh/special\n  IdentitiesOnly yes\n"
    )
    (home / ".ssh/special").write_text("")
    target = resolve(Host(name="n1", address="n1"))
    assert (target.hostname, target.port, target.user) == ("192.0.2.9", 2222, "fromconfig")
    assert target.identity_files == (str(home / ".ssh/special"),)
    assert target.identities_only
    assert target.known_hosts_name == "alias"
    assert target.jump is not None
    assert (target.jump.hostname, target.jump.port, target.jump.user) == ("gate", 2022, "me")
    changed_target = resolve(Host(name="n1", address="n1", port=99, user="ml", jump="other"))
    assert (changed_target.port, changed_target.user) == (99, "ml")
    assert changed_target.jump is not None
    assert changed_target.jump.hostname == "other"
    assert resolve(Host(name="n1", address="n1", jump="none")).jump is None


@needs_ssh
def test_ssh_is_run_only_if_configuration_matters(
    configured: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    configured("Host *\n  SendEnv LANG LC_*\n  HashKnownHosts yes\n  # Port 99\n")
    monkeypatch.setattr(ssh_config.subprocess, "run", lambda *_, **__: pytest.fail("asked"))
    assert ssh_config.read_settings("n1", None, None) == {}


@needs_ssh
def test_broken_configuration_is_named(configured: Callable[[str], Path]) -> None:
    configured("Host n1\n  Prot 22\n")
    with pytest.raises(ConfigError, match="prot"):
        resolve(Host(name="n1", address="n1"))


@pytest.mark.parametrize(
    "bad", ["-oProxyCommand=x", "a;b", "$(x)", "a\nb", "../x", "a" * 300, "", "a b"]
)
def test_invalid_addresses_and_users_are_refused(home: Path, bad: str) -> None:
    with pytest.raises(ConfigError):
        resolve(Host(name="n1", address=bad))
    if bad:
        with pytest.raises(ConfigError):
            resolve(Host(name="n1", address="n1", user=bad))


def test_jumps_are_read_as_by_openssh() -> None:
    assert parse_jump("a") == ((None, "a", None),)
    assert parse_jump("me@a:22,[fe80::1]:23, x@b") == (
        ("me", "a", 22),
        (None, "fe80::1", 23),
        ("x", "b", None),
    )
    for bad in ("", "a:b", "@a", "a,,b", "a:22:33:x"):
        with pytest.raises(ConfigError):
            parse_jump(bad)


def test_chain_of_jumps_ends_at_host(home: Path) -> None:
    target = resolve(
        Host(name="n1", address="n1", user="ml", identity_file="~/k", jump="u@a,v@b:23")
    )
    assert target.jump is not None
    assert target.jump.jump is not None
    assert (target.jump.user, target.jump.hostname, target.jump.port) == ("v", "b", 23)
    assert (target.jump.jump.user, target.jump.jump.hostname, target.jump.jump.jump) == (
        "u",
        "a",
        None,
    )
    assert target.jump.identity_files[0] == str(home / "k")


def test_equal_targets_have_equal_hashes(home: Path) -> None:
    first, second = (
        resolve(Host(name="x", address="a", user="u")),
        resolve(Host(name="y", address="a", user="u")),
    )
    assert first == second
    assert hash(first) == hash(second)
    assert isinstance(first, Target)


@needs_ssh
@pytest.mark.parametrize(
    ("word", "socket"),
    [
        ("none", ""),
        ("SSH_AUTH_SOCK", "/run/agent"),
        ("$OTHER", "/run/other"),
        ("$UNSET", ""),
        ("~/agents/%h-%r", "~/agents/192.0.2.9-ml"),
        ('"/run/a b/agent"', "/run/a b/agent"),
        ("${OTHER}.2", "/run/other.2"),
        (None, "/run/agent"),
    ],
)
def test_identity_agent_is_read_as_by_ssh(
    configured: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
    word: str | None,
    socket: str,
) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", "/run/agent")
    monkeypatch.setenv("OTHER", "/run/other")
    configured("Host n1\n  HostName 192.0.2.9\n" + (f"  IdentityAgent {word}\n" if word else ""))
    target = resolve(Host(name="n1", address="n1", user="ml"))
    # ssh replaces ~ by the home folder in the password database, not by HOME.
    home = pwd.getpwuid(os.getuid()).pw_dir
    assert target.agent == (home + socket[1:] if socket.startswith("~") else socket)
    agent_options = [word for word in ssh_argv(target) if word.startswith("IdentityAgent=")]
    assert agent_options == [f"IdentityAgent={_quoted(target.agent)}"]


def _quoted(path: str) -> str:
    return f'"{path}"' if " " in path else path or "none"


@needs_ssh
def test_tokens_in_key_paths_are_expanded(configured: Callable[[str], Path]) -> None:
    home = configured(
        "Host n1\n  IdentityFile ~/.ssh/%n-%r\n  CertificateFile %d/.ssh/%n-%%-cert.pub\n  "
        "PKCS11Provider /lib/p.so\n"
    )
    (home / ".ssh/n1-ml").write_text("")
    target = resolve(Host(name="n1", address="n1", user="ml"))
    assert target.identity_files == (str(home / ".ssh/n1-ml"),)
    assert target.certificates == (str(home / ".ssh/n1-%-cert.pub"),)
    assert target.unused == ("PKCS11Provider /lib/p.so",)
    assert f"CertificateFile={home}/.ssh/n1-%%-cert.pub" in ssh_argv(target)
    configured("Host *\n  IdentityFile ~/.ssh/%C\n")
    ssh_config.read_settings.cache_clear()
    with pytest.raises(ConfigError, match="%C"):
        resolve(Host(name="n2", address="n2", user="ml"))


def test_tokens_in_proxy_command_are_expanded(configured: Callable[[str], Path]) -> None:
    configured("Host n1\n  HostName 192.0.2.9\n  ProxyCommand nc -X %%5 %n %h %p %r\n")
    target = resolve(Host(name="n1", address="n1", port=2222, user="ml$"))
    assert target.proxy_command == "nc -X %5 n1 192.0.2.9 2222 'ml$'"
