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


def test_a_tree_arrives_identical_whatever_its_names(yard: Any, tree: Path, way: Any) -> None:
    host = yard.host("n1").host
    target, how = resolve(host), way(host)
    there = yard.root / "the re's"
    there.mkdir()
    assert push(target, str(tree), None, str(there), delete=True, **how) > 0
    assert contents(there) == contents(tree)
    assert (there / "run.sh").stat().st_mode & 0o777 == 0o700
    assert (there / "plain").stat().st_mode & 0o777 == 0o600
    (there / "stale").write_text("x")
    push(target, str(tree), None, str(there), delete=True, **how)
    assert contents(there) == contents(tree)


def test_only_the_names_are_sent_whatever_their_times_say(yard: Any, tree: Path, way: Any) -> None:
    host = yard.host("n1").host
    target, how = resolve(host), way(host)
    there = yard.root / "there"
    there.mkdir()
    seen: list[int] = []
    push(
        target,
        str(tree),
        [*ODD_NAMES, b"run.sh", b"link"],
        str(there),
        delete=False,
        on_progress=lambda done, _: seen.append(done),
        **how,
    )
    assert contents(there) == contents(tree)
    assert seen
    times = (tree / "plain").stat()
    (there / "plain").write_bytes(b"x" * times.st_size)
    os.utime(there / "plain", ns=(times.st_atime_ns, times.st_mtime_ns))
    push(target, str(tree), [b"plain"], str(there), delete=False, **how)
    assert contents(there) == contents(tree)


def test_a_noisy_login_shell_is_no_obstacle(yard: Any, tree: Path, way: Any) -> None:
    sshd = yard.host("n1")
    (sshd.home / ".bashrc").write_text("echo welcome to n1; printf 'no newline'\n")
    noisy = yard.host("n2", "ForceCommand echo hello; printf noise; eval $SSH_ORIGINAL_COMMAND")
    there = yard.root / "there"
    there.mkdir()
    push(resolve(noisy.host), str(tree), None, str(there), delete=True, **way(noisy.host))
    assert contents(there) == contents(tree)


def test_through_a_jump_host(yard: Any, tree: Path, way: Any) -> None:
    jump, inner = yard.host("jump"), yard.host("inner")
    host = replace(inner.host, jump=f"{jump.host.user}@127.0.0.1:{jump.port}")
    there = yard.root / "there"
    there.mkdir()
    push(resolve(host), str(tree), None, str(there), delete=True, **way(host))
    assert contents(there) == contents(tree)
    assert "Accepted publickey" in jump.trace()


def test_an_empty_source_deletes_nothing(yard: Any, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(Refused, match="empty"):
        push(resolve(yard.host("n1").host), str(empty), None, str(tmp_path), delete=True)


def test_rsync_missing_there_is_named(yard: Any, tree: Path, way: Any) -> None:
    bare = yard.host("n1", "ForceCommand PATH=/nowhere; eval $SSH_ORIGINAL_COMMAND")
    with pytest.raises(Refused, match="rsync is missing") as caught:
        push(resolve(bare.host), str(tree), None, str(tree), delete=False, **way(bare.host))
    assert caught.value.where == "n1"


def test_a_full_disk_is_named(yard: Any, tree: Path, way: Any) -> None:
    full = yard.host("n1", "ForceCommand ulimit -f 1; trap '' XFSZ; eval $SSH_ORIGINAL_COMMAND")
    (tree / "big").write_bytes(os.urandom(1 << 20))
    there = yard.root / "there"
    there.mkdir()
    with pytest.raises(HostFailed) as caught:
        push(resolve(full.host), str(tree), None, str(there), delete=False, **way(full.host))
    assert caught.value.where == "n1"


def test_an_unknown_host_key_is_refused_by_rsync_too(yard: Any, tree: Path) -> None:
    with pytest.raises(HostUnreachable, match="host key"):
        push(resolve(yard.host("n1", known=False).host), str(tree), None, str(tree), delete=False)


def test_nobody_listens(yard: Any, tree: Path) -> None:
    sshd = yard.host("n1")
    sshd.process.terminate()
    sshd.process.wait(120)
    with pytest.raises(HostUnreachable):
        push(resolve(sshd.host), str(tree), None, str(tree), delete=False)


def test_it_can_be_ended_and_goes_on_later(yard: Any, tree: Path, way: Any) -> None:
    host = yard.host("n1").host
    target, how = resolve(host), way(host)
    (tree / "big").write_bytes(os.urandom(64 << 20))
    there = yard.root / "there"
    there.mkdir()
    begun = threading.Event()

    def stop() -> None:
        assert begun.wait(120)
        running.end({target})

    ender = threading.Thread(daemon=True, target=stop)
    ender.start()
    try:
        push(
            target,
            str(tree),
            None,
            str(there),
            delete=False,
            on_progress=lambda done, _: begun.set(),
            **how,
        )
    except Interrupted:
        pass
    begun.set()
    ender.join()
    push(target, str(tree), None, str(there), delete=False, **how)
    assert contents(there) == contents(tree)


def test_a_session_that_ends_meanwhile_is_named(yard: Any, tree: Path) -> None:
    host = yard.host("n1").host
    (tree / "big").write_bytes(os.urandom(64 << 20))
    there = yard.root / "there"
    there.mkdir()
    session = open_session(host, Connector())

    def end(done: int, total: int | None) -> None:
        session.close()

    with pytest.raises(HostUnreachable, match="the connection ended"):
        push(
            resolve(host),
            str(tree),
            None,
            str(there),
            delete=False,
            on_progress=end,
            session=session,
        )


def test_where_sshd_allows_no_further_channel_a_new_ssh_carries_it(yard: Any, tree: Path) -> None:
    host = yard.host("n1", "MaxSessions 1").host
    there = yard.root / "there"
    there.mkdir()
    session = open_session(host, Connector())
    held = session.start("sleep 60")
    push(resolve(host), str(tree), None, str(there), delete=False, session=session)
    assert contents(there) == contents(tree)
    held.close()
    session.close()


def test_many_bytes_take_a_new_ssh(yard: Any, tree: Path) -> None:
    host = yard.host("n1").host
    there = yard.root / "there"
    there.mkdir()
    push(
        resolve(host),
        str(tree),
        None,
        str(there),
        delete=False,
        session=NoSession(),
        total_bytes=SESSION_BYTES,
    )
    assert contents(there) == contents(tree)


class NoSession:
    def start(self, line: str) -> Any:
        raise AssertionError("the session was used")
