"""What is made of a key that a host has shown."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from tfdeploy.errors import HostUnreachable
from tfdeploy.transport.ssh import trust
from tfdeploy.transport.ssh.target import Target


def rsa_of(bits: int) -> bytes:
    fields = (b"ssh-rsa", b"\1\0\1", b"\0" + b"\xff" * (bits // 8))
    return b"".join(struct.pack("!I", len(field)) + field for field in fields)


def test_a_key_that_ssh_accepts_from_nobody_is_not_offered_for_recording(tmp_path: Path) -> None:
    target = Target(hostname="n1", port=22, user="u", user_known_hosts=(str(tmp_path / "known"),))
    assert trust._compare("n1", target, "ssh-rsa", rsa_of(2048)).state == "new"
    with pytest.raises(HostUnreachable, match="at least 1024 bits"):
        trust._compare("n1", target, "ssh-rsa", rsa_of(768))
