"""known_hosts: plain, hashed and wildcard names, revoked keys, and recording without harm."""

from __future__ import annotations

import base64
import threading
from pathlib import Path

import pytest

from tfdeploy.errors import HostFailed
from tfdeploy.transport.ssh import known_hosts

KEY = base64.b64encode(b"key one").decode()
OTHER = base64.b64encode(b"key two").decode()
# ssh-keygen -H of "[127.0.0.1]:2200": salt and digest of HMAC-SHA1


def hashed(name: str) -> str:
    import hashlib
    import hmac

    salt = b"0123456789abcdefghij"
    digest = hmac.new(salt, name.encode(), hashlib.sha1).digest()
    return f"|1|{base64.b64encode(salt).decode()}|{base64.b64encode(digest).decode()}"


@pytest.mark.parametrize(
    ("line", "name", "found"),
    [
        (f"n1 ssh-ed25519 {KEY}", "n1", True),
        (f"n1 ssh-ed25519 {KEY}", "n2", False),
        (f"N1,[10.0.0.1]:2200 ssh-ed25519 {KEY} comment", "[10.0.0.1]:2200", True),
        (f"*.lab,!bad.lab ssh-ed25519 {KEY}", "good.lab", True),
        (f"*.lab,!bad.lab ssh-ed25519 {KEY}", "bad.lab", False),
        (f"[*.lab]:2200 ssh-ed25519 {KEY}", "[a.lab]:2200", True),
        (f"{hashed('[127.0.0.1]:2200')} ssh-ed25519 {KEY}", "[127.0.0.1]:2200", True),
        (f"{hashed('n1')} ssh-ed25519 {KEY}", "n2", False),
        (f"@cert-authority n1 ssh-ed25519 {KEY}", "n1", False),
        ("n1 ssh-ed25519 not-base64!", "n1", False),
        ("# n1 ssh-ed25519", "n1", False),
        ("n1", "n1", False),
    ],
)
def test_names_are_matched_as_openssh_does(line: str, name: str, found: bool) -> None:
    assert bool(known_hosts.read_lines([line], "f").find(name)) is found


def test_each_key_knows_its_line_and_whether_it_is_revoked() -> None:
    keys = known_hosts.read_lines(["", f"n1 ssh-ed25519 {KEY}", f"@revoked n1 ssh-rsa {OTHER}"], "/f").find("n1")
    assert [(key.source, key.keytype, key.key, key.revoked) for key in keys] == [
        ("/f:2", "ssh-ed25519", b"key one", False),
        ("/f:3", "ssh-rsa", b"key two", True),
    ]


def test_recorded_keys_are_found_again_and_nothing_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "new" / "known_hosts"
    path.parent.mkdir()
    path.write_text(f"old ssh-ed25519 {KEY}")  # no newline at the end
    threads = [
        threading.Thread(target=known_hosts.record, args=(str(path), f"[n{i}]:22{i:02}", "ssh-ed25519", b"key two"))
        for i in range(20)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert known_hosts.find([str(path)], "old")[0].key == b"key one"
    assert all(known_hosts.find([str(path)], f"[n{i}]:22{i:02}")[0].key == b"key two" for i in range(20))


def test_a_missing_file_is_made_private_and_a_folder_in_the_way_is_named(tmp_path: Path) -> None:
    path = tmp_path / ".ssh" / "known_hosts"
    known_hosts.record(str(path), "n1", "ssh-ed25519", b"k")
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    with pytest.raises(HostFailed) as caught:
        known_hosts.record(str(tmp_path), "n1", "ssh-ed25519", b"k")
    assert caught.value.where == str(tmp_path)


def test_a_thousand_hosts_are_found() -> None:
    lines = [f"[10.0.0.{i % 250}]:{i} ssh-ed25519 {KEY}" for i in range(1000)]
    found = known_hosts.read_lines(lines, "f")
    assert all(found.find(f"[10.0.0.{i % 250}]:{i}") for i in range(1000))
