"""Test that tfdeploy changes no other line of known_hosts when it records or replaces a key.

The file is never left damaged.
"""

from __future__ import annotations

import base64
import os
import struct
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import paramiko
import pytest

from support.needs import has_ability
from tfdeploy.errors import HostFailed
from tfdeploy.transport.ssh.host_keys import known_hosts, recording


def key_of(letter: str) -> bytes:
    return b"\0\0\0\x0bssh-ed25519" + struct.pack("!I", 32) + letter.encode() * 32


def text_of(letter: str) -> str:
    return f"ssh-ed25519 {base64.b64encode(key_of(letter)).decode()}"


OLD, ALSO, NEW = text_of("o"), text_of("a"), text_of("n")
HASHED, OTHER_HASHED = (paramiko.HostKeys.hash_host(name) for name in ("n1", "n2"))
NEW_LINE = f"n1 {NEW}"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", f"{NEW_LINE}\n"),
        (f"n1 {OLD}\n", f"{NEW_LINE}\n"),
        (f"n1 {OLD}", NEW_LINE),
        (f"n2 {OLD}", f"n2 {OLD}\n{NEW_LINE}\n"),
        (f"# one\nn1 {OLD} me\n\nn2 {OLD}\n", f"# one\n{NEW_LINE}\n\nn2 {OLD}\n"),
        (
            f"n2 {OLD}\nn1 {OLD}\nn3 {OLD}\nn1 {ALSO}\n# end",
            f"n2 {OLD}\n{NEW_LINE}\nn3 {OLD}\n# end",
        ),
        (f"n2,N1,10.0.0.1  {OLD}  two words\n", f"n2,10.0.0.1  {OLD}  two words\n{NEW_LINE}\n"),
        (f"n* {OLD}\n", f"n*,!n1 {OLD}\n{NEW_LINE}\n"),
        (f"n1,n* {OLD}\n", f"n*,!n1 {OLD}\n{NEW_LINE}\n"),
        (f"!n9,n1 {OLD}\n", f"{NEW_LINE}\n"),
        (f"!n1,n* {OLD}\n", f"!n1,n* {OLD}\n{NEW_LINE}\n"),
        (f"{HASHED} {OLD}\n{OTHER_HASHED} {OLD}\n", f"{NEW_LINE}\n{OTHER_HASHED} {OLD}\n"),
        (f"n2 {OLD}\r\nn1 {OLD}\r\n", f"n2 {OLD}\r\n{NEW_LINE}\n"),
        (
            f"@revoked n1 {OLD}\n@cert-authority n1 {ALSO}\n",
            f"@revoked n1 {OLD}\n@cert-authority n1 {ALSO}\n{NEW_LINE}\n",
        ),
        ("n1 ssh-ed25519 garbage\n\xff\0\n", f"n1 ssh-ed25519 garbage\n\xff\0\n{NEW_LINE}\n"),
        (f"[n1]:22 {OLD}\n", f"[n1]:22 {OLD}\n{NEW_LINE}\n"),
    ],
)
def test_only_names_of_host_are_removed(before: str, after: str) -> None:
    replaced_lines = recording.replace_in_text(
        before.encode("latin-1"), "n1", f"{NEW_LINE}\n".encode()
    )
    assert replaced_lines == after.encode("latin-1")


def test_line_keeps_other_names_and_pattern_excludes_host() -> None:
    text = f"[n1]:2200,[n2]:2200 {OLD}\n[n*]:2200 {ALSO}\n".encode()
    replaced_lines = recording.replace_in_text(text, "[n1]:2200", b"new\n")
    assert replaced_lines == f"[n2]:2200 {OLD}\nnew\n[n*]:2200,![n1]:2200 {ALSO}\n".encode()
    read = known_hosts.KnownFile(replaced_lines, "f")
    assert not read.find("[n1]:2200") and len(read.find("[n2]:2200")) == 2


def replace(*paths: Path, seen: str = "oa") -> None:
    line = recording.key_line("n1", "ssh-ed25519", key_of("n"), hash_name=False)
    recording.replace_key(
        [str(path) for path in paths], "n1", line, [key_of(letter) for letter in seen]
    )


def test_mode_owner_and_link_of_file_are_kept(tmp_path: Path) -> None:
    real, link = tmp_path / "elsewhere", tmp_path / "known_hosts"
    real.write_text(f"n1 {OLD}\n")
    real.chmod(0o640)
    if has_ability("other accounts"):
        os.chown(real, 12345, 23456)
    link.symlink_to(real)
    before = real.stat()
    (tmp_path / "elsewhere.tfdeploy-new").write_text("left by a tfdeploy that was killed")
    replace(link)
    now = real.stat()
    assert link.is_symlink() and real.read_text() == f"{NEW_LINE}\n"
    assert (now.st_mode, now.st_uid, now.st_gid) == (before.st_mode, before.st_uid, before.st_gid)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["elsewhere", "known_hosts"]
    assert known_hosts.find([str(link)], "n1")[0].key == key_of("n")


def test_file_with_hard_link_or_unseen_key_is_unchanged(
    tmp_path: Path,
) -> None:
    path = tmp_path / "known_hosts"
    path.write_text(f"n1 {OLD}\n")
    os.link(path, tmp_path / "same")
    with pytest.raises(HostFailed, match="hard links"):
        replace(path)
    (tmp_path / "same").unlink()
    with pytest.raises(HostFailed, match="meantime"):
        replace(path, seen="a")
    assert path.read_text() == f"n1 {OLD}\n"
    assert list(tmp_path.iterdir()) == [path]


def test_old_key_is_removed_from_all_files_and_replaced_in_first(tmp_path: Path) -> None:
    first, second, third = (tmp_path / name for name in "123")
    first.write_text(f"n2 {OLD}\n")
    second.write_text(f"n1 {OLD}\n")
    third.write_text(f"n1,n3 {ALSO}\n")
    replace(first, second, third, tmp_path / "none")
    assert (first.read_text(), second.read_text(), third.read_text()) == (
        f"n2 {OLD}\n",
        f"{NEW_LINE}\n",
        f"n3 {ALSO}\n",
    )


def test_renewal_interrupted_between_files_can_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tmp_path / "1", tmp_path / "2"
    first.write_text(f"n1 {OLD}\n")
    second.write_text(f"n1 {ALSO}\n")
    whole = recording._rewrite

    def cut(path: str, handle: int, text: bytes) -> None:
        if path == str(first):
            raise KeyboardInterrupt
        whole(path, handle, text)

    monkeypatch.setattr(recording, "_rewrite", cut)
    with pytest.raises(KeyboardInterrupt):
        replace(first, second)
    assert [key.key for key in known_hosts.find([str(first), str(second)], "n1")] == [key_of("o")]


def test_simultaneous_recordings_and_renewals_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "new" / "known_hosts"
    path.parent.mkdir()
    # The last line has no newline at its end.
    path.write_text("".join(f"r{i} {OLD}\n" for i in range(20)) + f"old {OLD}")

    def work(number: int) -> None:
        line = recording.key_line(
            f"[n{number}]:2200", "ssh-ed25519", key_of("k"), hash_name=number % 2 == 0
        )
        recording.append_key(str(path), f"[n{number}]:2200", line)
        renewed = recording.key_line(f"r{number}", "ssh-ed25519", key_of("n"), hash_name=False)
        while True:
            try:
                return recording.replace_key([str(path)], f"r{number}", renewed, [key_of("o")])
            except HostFailed as error:
                assert "another program" in error.what

    with ThreadPoolExecutor(20) as pool:
        list(pool.map(work, range(20)))
    assert known_hosts.find([str(path)], "old")[0].key == key_of("o")
    for i in range(20):
        assert [known_key.key for known_key in known_hosts.find([str(path)], f"[n{i}]:2200")] == [
            key_of("k")
        ]
        assert [known_key.key for known_key in known_hosts.find([str(path)], f"r{i}")] == [
            key_of("n")
        ]


def test_missing_file_is_created_private_and_folder_in_its_place_is_named(tmp_path: Path) -> None:
    path = tmp_path / ".ssh" / "known_hosts"
    recording.append_key(str(path), "n1", f"{NEW_LINE}\n".encode())
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    with pytest.raises(HostFailed) as caught:
        recording.append_key(str(tmp_path), "n1", f"{NEW_LINE}\n".encode())
    assert caught.value.where == str(tmp_path)


def test_key_is_not_recorded_if_host_got_another_meanwhile(tmp_path: Path) -> None:
    path = tmp_path / "known_hosts"
    for _ in range(2):
        recording.append_key(str(path), "n1", f"{NEW_LINE}\n".encode())
    with pytest.raises(HostFailed, match="another key of n1 was added"):
        recording.append_key(str(path), "n1", f"n1 {OLD}\n".encode())
    assert {key.key for key in known_hosts.find([str(path)], "n1")} == {key_of("n")}


def test_hashed_name_is_found_but_not_readable() -> None:
    line = recording.key_line("n1.example.org", "ssh-ed25519", key_of("n"), hash_name=True)
    assert line.startswith(b"|1|") and b"example" not in line
    known_file = known_hosts.KnownFile(line, "f")
    assert (
        known_file.find("n1.example.org")
        and not known_file.find("n2.example.org")
        and known_file.has_hashed
    )


def test_files_below_etc_ssh_are_not_own_files(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc/ssh/ssh_known_hosts")
    assert not recording.is_outside_system_folder(
        "/etc/ssh/ssh_known_hosts"
    ) and not recording.is_outside_system_folder(str(tmp_path / "link"))
    assert recording.is_outside_system_folder(str(tmp_path / "known_hosts"))
