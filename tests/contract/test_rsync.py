"""Test that rsync connects to real sshds in the same way as a session does."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tfdeploy.errors import HostFailed, HostUnreachable, Interrupted, Refused
from tfdeploy.transport.rsync import running
from tfdeploy.transport.rsync.transfer import SESSION_BYTES, push
from tfdeploy.transport.session import open_session
from tfdeploy.transport.ssh.connect import Connector
from tfdeploy.transport.ssh.target import resolve

ODD_NAMES = [
    b"plain",
    b"with space",
    b"quo'te\"s",
    b"-dash",
    b"#hash",
    b";semi",
    b"new\nline",
    b"bytes\xff\xfe",
    "emoji\U0001f600".encode(),
    b"a/b/c",
    b"star*",
]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree of mine"
    for name in ODD_NAMES:
        path = os.path.join(os.fsencode(root), name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        Path(os.fsdecode(path)).write_bytes(name * 3)
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)
    (root / "link").symlink_to("plain")
    return root


def contents(root: Path) -> dict[bytes, bytes | str]:
    files: dict[bytes, bytes | str] = {}
    for folder, _, names in os.walk(os.fsencode(root)):
        for name in names:
            path = os.path.join(folder, name)
            known = os.path.relpath(path, os.fsencode(root))
            files[known] = (
                os.readlink(path) if os.path.islink(path) else Path(os.fsdecode(path)).read_bytes()
            )
    return files


def all_names(root: Path) -> list[bytes]:
    return sorted(contents(root))


def test_tree_with_unusual_names_arrives_identical(
    ssh_hosts: Any, tree: Path, connect_to: Any
) -> None:
    host = ssh_hosts.host("n1").host
    target, connection = resolve(host), connect_to(host)
    destination = ssh_hosts.root / "the re's"
    destination.mkdir()
    assert push(target, str(tree), all_names(tree), str(destination), **connection) > 0
    assert contents(destination) == contents(tree)
    assert (destination / "run.sh").stat().st_mode & 0o777 == 0o700
    assert (destination / "plain").stat().st_mode & 0o777 == 0o600


def test_only_requested_names_are_sent_whatever_their_times(
    ssh_hosts: Any, tree: Path, connect_to: Any
) -> None:
    host = ssh_hosts.host("n1").host
    target, connection = resolve(host), connect_to(host)
    destination = ssh_hosts.root / "there"
    destination.mkdir()
    seen: list[int] = []
    push(
        target,
        str(tree),
        [*ODD_NAMES, b"run.sh", b"link"],
        str(destination),
        on_progress=lambda done: seen.append(done),
        **connection,
    )
    assert contents(destination) == contents(tree)
    assert seen
    times = (tree / "plain").stat()
    (destination / "plain").write_bytes(b"x" * times.st_size)
    os.utime(destination / "plain", ns=(times.st_atime_ns, times.st_mtime_ns))
    push(target, str(tree), [b"plain"], str(destination), **connection)
    assert contents(destination) == contents(tree)


def test_push_through_noisy_login_shell(ssh_hosts: Any, tree: Path, connect_to: Any) -> None:
    sshd = ssh_hosts.host("n1")
    (sshd.home / ".bashrc").write_text("echo welcome to n1; printf 'no newline'\n")
    noisy = ssh_hosts.host(
        "n2", "ForceCommand echo hello; printf noise; eval $SSH_ORIGINAL_COMMAND"
    )
    destination = ssh_hosts.root / "there"
    destination.mkdir()
    push(
        resolve(noisy.host),
        str(tree),
        all_names(tree),
        str(destination),
        **connect_to(noisy.host),
    )
    assert contents(destination) == contents(tree)


def test_push_through_jump_host(ssh_hosts: Any, tree: Path, connect_to: Any) -> None:
    jump, inner = ssh_hosts.host("jump"), ssh_hosts.host("inner")
    host = replace(inner.host, jump=f"{jump.host.user}@127.0.0.1:{jump.port}")
    destination = ssh_hosts.root / "there"
    destination.mkdir()
    push(resolve(host), str(tree), all_names(tree), str(destination), **connect_to(host))
    assert contents(destination) == contents(tree)
    assert "Accepted publickey" in jump.trace()


def test_rsync_missing_on_host_is_named(ssh_hosts: Any, tree: Path, connect_to: Any) -> None:
    bare = ssh_hosts.host("n1", "ForceCommand PATH=/nowhere; eval $SSH_ORIGINAL_COMMAND")
    with pytest.raises(Refused, match="rsync is missing") as caught:
        push(resolve(bare.host), str(tree), all_names(tree), str(tree), **connect_to(bare.host))
    assert caught.value.where == "n1"


def test_full_disk_on_host_is_named(ssh_hosts: Any, tree: Path, connect_to: Any) -> None:
    full = ssh_hosts.host(
        "n1", "ForceCommand ulimit -f 1; trap '' XFSZ; eval $SSH_ORIGINAL_COMMAND"
    )
    (tree / "big").write_bytes(os.urandom(1 << 20))
    destination = ssh_hosts.root / "there"
    destination.mkdir()
    with pytest.raises(HostFailed) as caught:
        push(
            resolve(full.host),
            str(tree),
            all_names(tree),
            str(destination),
            **connect_to(full.host),
        )
    assert caught.value.where == "n1"


def test_rsync_refuses_unknown_host_key(ssh_hosts: Any, tree: Path) -> None:
    with pytest.raises(HostUnreachable, match="host key"):
        push(
            resolve(ssh_hosts.host("n1", known=False).host),
            str(tree),
            all_names(tree),
            str(tree),
        )


def test_host_without_listener_is_unreachable(ssh_hosts: Any, tree: Path) -> None:
    sshd = ssh_hosts.host("n1")
    sshd.process.terminate()
    sshd.process.wait(120)
    with pytest.raises(HostUnreachable):
        push(resolve(sshd.host), str(tree), all_names(tree), str(tree))


def test_interrupted_push_is_resumed(ssh_hosts: Any, tree: Path, connect_to: Any) -> None:
    host = ssh_hosts.host("n1").host
    target, connection = resolve(host), connect_to(host)
    (tree / "big").write_bytes(os.urandom(64 << 20))
    destination = ssh_hosts.root / "there"
    destination.mkdir()
    started = threading.Event()

    def stop() -> None:
        assert started.wait(120)
        running.end_transfers({target})

    stopper = threading.Thread(daemon=True, target=stop)
    stopper.start()
    try:
        push(
            target,
            str(tree),
            all_names(tree),
            str(destination),
            on_progress=lambda done: started.set(),
            **connection,
        )
    except Interrupted:
        pass
    started.set()
    stopper.join()
    push(target, str(tree), all_names(tree), str(destination), **connection)
    assert contents(destination) == contents(tree)


def test_only_differences_from_older_version_are_sent(
    ssh_hosts: Any, tree: Path, connect_to: Any
) -> None:
    host = ssh_hosts.host("n1").host
    older, destination = ssh_hosts.root / "older", ssh_hosts.root / "newer"
    for folder in (older, destination):
        folder.mkdir()
    content = os.urandom(4 << 20)
    (older / "big").write_bytes(content)
    (tree / "big").write_bytes(content[: 2 << 20] + b"inserted" + content[2 << 20 :])
    sent = push(
        resolve(host),
        str(tree),
        all_names(tree),
        str(destination),
        in_place=True,
        older_folder=str(older),
        **connect_to(host),
    )
    assert contents(destination) == contents(tree) and sent < 1 << 20
    assert (older / "big").read_bytes() == content


def test_push_in_place_goes_on_where_killed_rsync_ended(
    ssh_hosts: Any, tree: Path, connect_to: Any
) -> None:
    host = ssh_hosts.host("n1").host
    destination = ssh_hosts.root / "there"
    destination.mkdir()
    content = os.urandom(32 << 20)
    (tree / "big").write_bytes(content)
    (destination / "big").write_bytes(content[: 24 << 20])
    arguments = (resolve(host), str(tree), all_names(tree), str(destination))
    assert push(*arguments, in_place=True, **connect_to(host)) < 16 << 20
    assert contents(destination) == contents(tree)


def test_session_that_ends_during_push_is_named(ssh_hosts: Any, tree: Path) -> None:
    host = ssh_hosts.host("n1").host
    (tree / "big").write_bytes(os.urandom(64 << 20))
    destination = ssh_hosts.root / "there"
    destination.mkdir()
    session = open_session(host, Connector())

    def end(done: int) -> None:
        session.close()

    with pytest.raises(HostUnreachable, match="the connection ended"):
        push(
            resolve(host),
            str(tree),
            all_names(tree),
            str(destination),
            on_progress=end,
            session=session,
        )


def test_push_starts_new_ssh_if_sshd_allows_no_further_channel(ssh_hosts: Any, tree: Path) -> None:
    host = ssh_hosts.host("n1", "MaxSessions 1").host
    destination = ssh_hosts.root / "there"
    destination.mkdir()
    session = open_session(host, Connector())
    open_channel = session.start("sleep 60")
    push(resolve(host), str(tree), all_names(tree), str(destination), session=session)
    assert contents(destination) == contents(tree)
    open_channel.close()
    session.close()


def test_push_of_many_bytes_starts_new_ssh(ssh_hosts: Any, tree: Path) -> None:
    host = ssh_hosts.host("n1").host
    destination = ssh_hosts.root / "there"
    destination.mkdir()
    push(
        resolve(host),
        str(tree),
        all_names(tree),
        str(destination),
        session=NoSession(),
        total_bytes=SESSION_BYTES,
    )
    assert contents(destination) == contents(tree)


class NoSession:
    def start(self, line: str) -> Any:
        raise AssertionError("the session was used")
