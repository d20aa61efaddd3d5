"""Test how `tfdeploy trust` classifies the host key that a host presents."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, cast

import paramiko
import pytest

from tfdeploy.errors import HostUnreachable
from tfdeploy.transport.ssh import trust
from tfdeploy.transport.ssh.target import Target


def rsa_of(bits: int) -> bytes:
    fields = (b"ssh-rsa", b"\1\0\1", b"\0" + b"\xff" * (bits // 8))
    return b"".join(struct.pack("!I", len(field)) + field for field in fields)


class Shows:
    """Stands for a connection to a host that presents an RSA key of `bits` bits."""

    def __init__(self, bits: int) -> None:
        self._bits = bits

    def host_key(self, host: str, target: Target) -> paramiko.PKey:
        return paramiko.RSAKey(data=rsa_of(self._bits))


def test_key_that_ssh_never_accepts_cannot_be_recorded(tmp_path: Path) -> None:
    target = Target(hostname="n1", port=22, user="u", user_known_hosts=(str(tmp_path / "known"),))
    good, short = Shows(2048), Shows(768)
    assert trust.scan("n1", target, cast(Any, good)).state == "new"
    with pytest.raises(HostUnreachable, match="fewer than 1024 bits"):
        trust.scan("n1", target, cast(Any, short))
