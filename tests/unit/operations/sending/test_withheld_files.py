"""Test which files of this machine must not be sent to hosts.

These are files that contain secrets, and files that the inventory or ssh's configuration names,
such as private keys.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tfdeploy.model.inventory import Host
from tfdeploy.model.job import Job, SecretSource
from tfdeploy.operations.sending.withheld_files import list_withheld_files
from tfdeploy.transport.ssh import ssh_config

KEY = (
    "-----BEGIN OPENSSH PRIVATE KEY-----\n"
    + "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAA" * 2
    + "\n"
)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(ssh_config, "SYSTEM_CONFIG", str(tmp_path / "system"))
    monkeypatch.setattr(
        ssh_config.subprocess, "run", lambda *_, **__: pytest.fail("a process was started")
    )
    (tmp_path / ".ssh").mkdir()
    return tmp_path


def name_withheld(home: Path, *hosts: Host, **sources: SecretSource) -> dict[str, str]:
    """Return the files that must not be sent, as {path below the home folder: description}."""
    job = Job(
        name="j",
        mode=None,
        command=(),
        code=str(home),
        secrets=tuple(sources),
        secret_sources=dict(sources),
    )
    return {
        path: file.description
        for path, file in list_withheld_files(job, iter(hosts)).files_below(str(home)).items()
    }


def write_file(home: Path, path: str, text: str = KEY) -> str:
    place = home / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)
    return str(place)


def test_files_of_secrets_and_of_every_host_are_withheld(home: Path) -> None:
    host = {"address": "192.0.2.1", "identity_file": "~/keys/id", "known_hosts": "~/keys/hosts"}
    other = Host(name="n2", address="192.0.2.2", identity_file="~/keys/mine.pub")
    sources = {
        "TOKEN": SecretSource(file=str(home / "token.txt")),
        "OTHER": SecretSource(variable="OTHER"),
    }
    withheld = name_withheld(home, Host(name="n1", **host), other, **sources)
    assert withheld["token.txt"] == "the secret TOKEN"
    assert withheld["keys/id"] == "a private key of the inventory"
    assert withheld["keys/hosts"] == withheld[".ssh/known_hosts"] == "a known_hosts file"
    assert "keys/mine.pub" not in withheld


def test_ssh_keys_and_known_hosts_are_found_without_running_ssh(home: Path) -> None:
    for path in (
        ".ssh/id_ed25519",
        "keys/of n1",
        "keys/host-n7",
        "keys/included",
        "keys/quoted",
        "kh",
    ):
        write_file(home, path)
    write_file(home, ".ssh/id_ed25519.pub", "ssh-ed25519 AAAA")
    write_file(home, "keys/host-notes", "no key")
    write_file(home, ".ssh/more", f"Host x\n  IdentityFile={home}/keys/included\n")
    write_file(home, ".ssh/loop", "Include loop\n")
    write_file(
        home,
        ".ssh/config",
        "Include more\nInclude loop\nHost n*\n  identityfile ~/keys/host-%h\n  "
        "UserKnownHostsFile ~/none ~/kh\n"
        '  IdentityFile ~/keys/of n1\n  IdentityFile "%d/keys/quoted"\n',
    )
    key = "a private key of ssh"
    assert name_withheld(home) == {
        ".ssh/id_ed25519": key,
        "keys/of n1": key,
        "keys/host-n7": key,
        "keys/included": key,
        "keys/quoted": key,
        "kh": "a known_hosts file",
        ".ssh/known_hosts": "a known_hosts file",
        ".ssh/known_hosts2": "a known_hosts file",
    }
