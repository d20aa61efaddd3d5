"""Test the keys of an ssh-agent whose socket is set in ssh's configuration. Some tests use an
ssh-agent that hangs.
"""

from __future__ import annotations

import base64
import socket
import struct
from pathlib import Path

import pytest

from tfdeploy.transport.ssh import identities, ssh_agent
from tfdeploy.transport.ssh.target import Target


def target(**settings: object) -> Target:
    return Target(hostname="10.0.0.1", port=22, user="ml", **settings)  # type: ignore[arg-type]


def test_silent_ssh_agent_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssh_agent, "ANSWER_S", 0.2)
    place = str(tmp_path / "stuck")
    with socket.socket(socket.AF_UNIX) as stuck:
        stuck.bind(place)
        stuck.listen()
        offer = identities.KeyOffer(target(agent=place))
        assert offer.has_no_keys
        assert offer.notes == [f"the ssh-agent on {place} did not answer within 0.2 s"]
        offer.close()


def test_missing_socket_is_named(tmp_path: Path) -> None:
    offer = identities.KeyOffer(target(agent=str(tmp_path / "none")))
    assert offer.notes == [
        f"the ssh-agent on {tmp_path / 'none'} does not answer: No such file or directory"
    ]
    long = str(tmp_path / ("x" * 120))
    assert "too long" in identities.KeyOffer(target(agent=long)).notes[0]
    assert identities.KeyOffer(target()).notes == []


def test_unusable_keys_and_settings_give_notes(tmp_path: Path) -> None:
    def word(data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + data

    public = word(b"sk-ssh-ed25519@openssh.com") + word(b"k" * 32) + word(b"ssh:")
    body = (
        b"openssh-key-v1\0"
        + word(b"none") * 2
        + word(b"")
        + struct.pack(">I", 1)
        + word(public)
        + word(b"x" * 64)
    )
    token = tmp_path / "id_ed25519_sk"
    lines = base64.encodebytes(body).decode()
    token.write_text(
        f"-----BEGIN OPENSSH PRIVATE KEY-----\n{lines}-----END OPENSSH PRIVATE KEY-----\n"
    )
    certificate = tmp_path / "none-cert.pub"
    settings = {"certificates": (str(certificate),), "unused": ("PKCS11Provider /lib/p.so",)}
    offer = identities.KeyOffer(target(identity_files=(str(token),), **settings))
    assert offer.has_no_keys
    assert offer.notes == [
        f"certificate {certificate} cannot be read: No such file or directory",
        f"key {token} is on a hardware token and no ssh-agent holds it: ssh-add {token}",
        "PKCS11Provider /lib/p.so of ssh's configuration has no effect: load the provider's keys "
        "with ssh-add",
    ]


def test_note_says_whether_folder_of_key_is_gone_too(tmp_path: Path) -> None:
    for path, is_gone in ((tmp_path / "id", False), (tmp_path / "lab" / "id", True)):
        (note, *_) = identities.KeyOffer(target(identity_files=(str(path),))).notes
        assert note.startswith(f"key file {path} cannot be read: No such file or directory")
        assert ("its folder is gone too" in note) == is_gone
