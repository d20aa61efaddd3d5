"""Test that tfdeploy reads the lines of known_hosts as OpenSSH does.

For each key, tfdeploy also finds the file and the line that contain the key.
"""

from __future__ import annotations

import base64
import hmac
import struct
from pathlib import Path

import pytest

from tfdeploy.errors import HostUnreachable
from tfdeploy.transport.ssh.host_keys import known_hosts


def hashed_name(name: str, salt: bytes) -> str:
    digest = hmac.digest(salt, name.encode(), "sha1")
    return f"|1|{base64.b64encode(salt).decode()}|{base64.b64encode(digest).decode()}"


def packed(*fields: bytes) -> bytes:
    return b"".join(struct.pack("!I", len(field)) + field for field in fields)


KEY = packed(b"ssh-ed25519", b"1" * 32)
RSA = packed(b"ssh-rsa", b"\1\0\1", b"\0" + b"\xff" * 256)
SHORT_RSA = packed(b"ssh-rsa", b"\1\0\1", b"\0" + b"\xff" * 96)
ED = f"ssh-ed25519 {base64.b64encode(KEY).decode()}"
SALT = b"0123456789abcdefghij"


def line_of(names: str, keytype: str, key: bytes) -> str:
    return f"{names} {keytype} {base64.b64encode(key).decode()}"


@pytest.mark.parametrize(
    ("line", "name", "is_known"),
    [
        (f"n1 {ED}", "n1", True),
        (f"n1 {ED}", "n2", False),
        (f" \t n1 \t {ED} comment", "n1", True),
        (f"N1,[10.0.0.1]:2200 {ED} comment", "[10.0.0.1]:2200", True),
        (f"*.lab,!bad.lab {ED}", "good.lab", True),
        (f"*.lab,!bad.lab {ED}", "bad.lab", False),
        (f"!bad.lab,*.lab {ED}", "bad.lab", False),
        (f"[*.lab]:2200 {ED}", "[a.lab]:2200", True),
        (f"n? {ED}", "n1", True),
        (f"n[12] {ED}", "n1", False),
        (f"{hashed_name('[127.0.0.1]:2200', SALT)} {ED}", "[127.0.0.1]:2200", True),
        (f"{hashed_name('n1', SALT)} {ED}", "n2", False),
        (f"{hashed_name('n1', b'short')} {ED}", "n1", False),
        (f"n1 {ED}\r", "n1", True),
        (f"n1 {ED}\0", "n1", True),
        (f"n\x001 {ED}", "n1", False),
        # Only spaces and tabs separate the words of a line.
        (f"n1\x0b{ED}", "n1", False),
        (f"n1\xa0{ED}", "n1", False),
        (f"{'x' * 1100},n1 {ED}", "n1", False),
        (f"{'x,' * 500_000}n1 {ED}", "n1", True),
        # This is the Kelvin sign. Its lowercase form is the letter k.
        (f"\u212a {ED}", "k", False),
        ("n1 ssh-ed25519 not-base64!", "n1", False),
        (f"n1 {ED[:-1]}", "n1", False),
        (line_of("n1", "ssh-rsa", RSA), "n1", True),
        (line_of("n1", "rsa-sha2-512", RSA), "n1", True),
        (line_of("n1", "ssh-rsa", SHORT_RSA), "n1", False),
        (line_of("n1", "ssh-rsa", KEY), "n1", False),
        (line_of("n1", "ssh-ed25519", KEY + b"x"), "n1", False),
        (line_of("n1", "ssh-foo", packed(b"ssh-foo", b"1")), "n1", False),
        (f"@revoked n1 {ED}", "n1", True),
        # Like OpenSSH, tfdeploy accepts only a space after a marker.
        (f"@revoked\tn1 {ED}", "n1", False),
        (f"@other n1 {ED}", "n1", False),
        (f"@revoked @revoked n1 {ED}", "n1", False),
        (f"# n1 {ED}", "n1", False),
        ("n1", "n1", False),
        ("@revoked", "n1", False),
        ("@", "n1", False),
        ("", "n1", False),
    ],
)
def test_lines_are_read_as_openssh_reads_them(line: str, name: str, is_known: bool) -> None:
    assert bool(known_hosts.KnownFile(line.encode("utf-8"), "f").find(name)) is is_known


def test_each_key_has_line_and_marker() -> None:
    lines = ["", f"n* {ED}", f"@revoked n1 {ED}", f"n1 {ED}", f"@cert-authority * {ED}"]
    keys = known_hosts.KnownFile("\n".join(lines).encode(), "/f").find("n1")
    assert [(key.source, key.marker) for key in keys] == [
        ("/f:2", ""),
        ("/f:3", "@revoked"),
        ("/f:4", ""),
        ("/f:5", "@cert-authority"),
    ]
    assert {(key.keytype, key.key) for key in keys} == {("ssh-ed25519", KEY)}


def test_replaced_file_is_read_again(tmp_path: Path) -> None:
    path, other = tmp_path / "known_hosts", tmp_path / "other"
    path.write_text(f"n1 {ED}\n")
    facts = path.stat()
    assert known_hosts.find([str(path)], "n1")
    other.write_text(f"n2 {ED}\n")
    other.rename(path)
    import os

    # The new file has the same modification time and the same size as the old one.
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert not known_hosts.find([str(path)], "n1")


def test_missing_or_irregular_file_is_empty(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for name in (".", "none", "loop"):
        assert known_hosts.find([str(tmp_path / name)], "n1") == []


def test_keys_of_1000_hosts_are_found() -> None:
    lines = [f"[10.0.0.{i % 250}]:{i} {ED}".encode() for i in range(1000)]
    known_file = known_hosts.KnownFile(b"\n".join(lines), "f")
    assert all(known_file.find(f"[10.0.0.{i % 250}]:{i}") for i in range(1000))


def test_ssh_keygen_reads_only_unusual_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The folder in PATH has no ssh-keygen.
    monkeypatch.setenv("PATH", str(tmp_path))
    usual = [
        "# of n1",
        "",
        f"n1,n2 {ED}",
        f"{hashed_name('n3', SALT)} {ED}",
        f"@revoked n4 {ED}",
        f"n5 {ED} *.lab",
    ]
    file = known_hosts.KnownFile("\n".join(usual).encode(), "/f")
    assert [key.line for n in range(1, 6) for key in file.find(f"n{n}")] == [3, 3, 4, 5, 6]
    unusual = known_hosts.KnownFile(
        "\n".join([*usual, f"n2 ssh-dss {ED}", f"*.lab {ED}"]).encode(), "/f"
    )
    with pytest.raises(
        HostUnreachable, match=r"^/f:8 cannot be read: this machine has no ssh-keygen$"
    ):
        unusual.find("n1")


def test_authorities_are_searched_only_on_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "known"
    path.write_text(f"@cert-authority * {ED}\nn1 {ED}\n")
    assert [key.line for key in known_hosts.find([str(path)], "n1")] == [1, 2]
    monkeypatch.setenv("PATH", str(tmp_path))
    assert [key.line for key in known_hosts.find([str(path)], "n1", with_authorities=False)] == [2]
