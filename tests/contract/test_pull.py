"""Test how files are copied from real sshds: which files arrive, and which copies are resumed.

A host can never make tfdeploy write outside the destination.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tfdeploy.errors import HostFailed, HostUnreachable, Interrupted, Refused
from tfdeploy.transport.rsync import confinement, running
from tfdeploy.transport.rsync.transfer import pull
from tfdeploy.transport.ssh.target import resolve

ODD_NAMES = [
    b"plain",
    b"with space",
    b"quo'te\"s",
    b"-dash",
    b"#hash",
    b"new\nline",
    b"bytes\xff\xfe",
    b"a/b/c",
    b"star*",
]


@pytest.fixture
def remote_tree(tmp_path: Path) -> Path:
    """Return a folder of the host. Its files have unusual names."""
    root = tmp_path / "tree the're"
    for name in ODD_NAMES:
        path = os.path.join(os.fsencode(root), name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        Path(os.fsdecode(path)).write_bytes(name * 3)
    return root


@pytest.fixture
def local_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "brought"
    folder.mkdir()
    return folder


def contents(root: Path) -> dict[bytes, bytes]:
    files = {}
    for folder, _, names in os.walk(os.fsencode(root)):
        for name in names:
            path = os.path.join(folder, name)
            assert not os.path.islink(path), path
            files[os.path.relpath(path, os.fsencode(root))] = Path(os.fsdecode(path)).read_bytes()
    return files


def test_pulled_tree_is_identical_and_second_pull_copies_nothing(
    ssh_hosts: Any, remote_tree: Path, local_folder: Path, connect_to: Any
) -> None:
    host = ssh_hosts.host("n1").host
    target, connection = resolve(host), connect_to(host)
    os.utime(remote_tree / "plain", (1_000_000_000, 1_000_000_000))
    first = pull(target, str(remote_tree), str(local_folder), **connection)
    assert contents(local_folder) == contents(remote_tree)
    assert (local_folder / "plain").stat().st_mtime == 1_000_000_000
    assert (local_folder / "plain").stat().st_mode & 0o777 == 0o600
    assert 0 < pull(target, str(remote_tree), str(local_folder), **connection) < first


def test_only_requested_names_are_pulled_and_missing_one_is_no_error(
    ssh_hosts: Any, remote_tree: Path, local_folder: Path, connect_to: Any
) -> None:
    host = ssh_hosts.host("n1").host
    seen: list[int] = []
    names = [name for name in ODD_NAMES if name != b"plain"]
    pull(
        resolve(host),
        str(remote_tree),
        str(local_folder),
        names=[*names, b"rotated/away"],
        on_progress=lambda done: seen.append(done),
        **connect_to(host),
    )
    assert sorted(contents(local_folder)) == sorted(names)
    assert seen


@pytest.mark.parametrize(
    "name", [b"../x", b"/etc/passwd", b"a/../../x", b"", b"a//b", b".", b"a\0b"]
)
def test_name_outside_folder_is_refused_before_any_request(
    ssh_hosts: Any, remote_tree: Path, local_folder: Path, name: bytes
) -> None:
    sshd = ssh_hosts.host("n1")
    with pytest.raises(Refused, match="leads out"):
        pull(resolve(sshd.host), str(remote_tree), str(local_folder), names=[b"plain", name])
    assert "Accepted" not in sshd.trace()


def test_target_of_link_is_not_written(
    ssh_hosts: Any, remote_tree: Path, local_folder: Path, tmp_path: Path
) -> None:
    """Test that tfdeploy copies no symbolic link from a host, and writes nothing to the target of a
    link.
    """
    outside = tmp_path / "outside"
    outside.mkdir()
    (remote_tree / "out").symlink_to(outside)
    (remote_tree / "up").symlink_to("../outside")
    (remote_tree / "near").symlink_to("plain")
    pull(resolve(ssh_hosts.host("n1").host), str(remote_tree), str(local_folder))
    assert contents(local_folder).keys() == set(ODD_NAMES)
    assert not list(outside.iterdir())


def lying(ssh_hosts: Any, root: Path) -> Any:
    """Return a host that always sends all files below `root`, whatever files are requested."""
    return ssh_hosts.host(
        "liar",
        "ForceCommand cat /dev/null; exec rsync --server --sender -rpt . "
        f"{shlex.quote(str(root))}/",
    )


def test_host_that_sends_other_files_writes_only_to_destination(
    ssh_hosts: Any, remote_tree: Path, local_folder: Path, tmp_path: Path, connect_to: Any
) -> None:
    before = sorted(tmp_path.iterdir())
    liar = lying(ssh_hosts, remote_tree).host
    with pytest.raises((HostFailed, HostUnreachable, Refused)):
        pull(
            resolve(liar),
            str(remote_tree),
            str(local_folder),
            names=[b"wanted"],
            **connect_to(liar),
        )
    assert set(contents(local_folder)) <= set(ODD_NAMES)
    assert sorted(
        path
        for path in tmp_path.iterdir()
        if path.name not in ("liar", "key", "key.pub", "known_hosts")
    ) == [path for path in before if path.name not in ("key", "key.pub", "known_hosts")]


def slow(ssh_hosts: Any) -> Any:
    """Return a host whose rsync sends at most 20 MB/s."""
    limit = 'sed "s/--server/--server --bwlimit=20000/"'
    return ssh_hosts.host(
        "slow", f'ForceCommand eval "$(printf %s "$SSH_ORIGINAL_COMMAND" | {limit})"'
    )


def test_more_bytes_than_announced_are_refused(
    ssh_hosts: Any, remote_tree: Path, local_folder: Path, connect_to: Any
) -> None:
    host = slow(ssh_hosts).host
    (remote_tree / "big").write_bytes(os.urandom(64 << 20))
    with pytest.raises(HostFailed, match="more than"):
        pull(
            resolve(host),
            str(remote_tree),
            str(local_folder),
            names=[b"big"],
            max_bytes=1 << 20,
            **connect_to(host),
        )
    assert not (local_folder / "big").exists()


def test_host_that_sends_too_slowly_is_given_up(
    ssh_hosts: Any, remote_tree: Path, local_folder: Path, connect_to: Any
) -> None:
    (remote_tree / "big").write_bytes(os.urandom(64 << 20))
    host = slow(ssh_hosts).host
    with pytest.raises(HostFailed, match="did not send all files within"):
        pull(
            resolve(host),
            str(remote_tree),
            str(local_folder),
            names=[b"big"],
            max_s=0.8,
            **connect_to(host),
        )
    assert not (local_folder / "big").exists()


@pytest.mark.skipif(not confinement.can_confine(), reason="needs Landlock")
def test_local_rsync_is_confined_and_its_ssh_is_not(
    ssh_hosts: Any, remote_tree: Path, local_folder: Path, connect_to: Any
) -> None:
    host = slow(ssh_hosts).host
    connection = connect_to(host)
    (remote_tree / "big").write_bytes(os.urandom(40 << 20))
    seen: set[tuple[str, bool]] = set()

    def record_confined_children(done: int) -> None:
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                words, status = (process / "cmdline").read_bytes(), (process / "status").read_text()
                name = os.fsdecode(words.split(b"\0")[0])
                if f"PPid:\t{os.getpid()}\n" in status and name in ("rsync", "ssh"):
                    seen.add((name, "NoNewPrivs:\t1" in status and "Seccomp:\t2" in status))

    pull(
        resolve(host),
        str(remote_tree),
        str(local_folder),
        names=[b"big"],
        on_progress=record_confined_children,
        **connection,
    )
    assert seen == {("rsync", True)} | (set() if connection else {("ssh", False)})
    assert (local_folder / "big").read_bytes() == (remote_tree / "big").read_bytes()


def test_interrupted_pull_is_resumed(
    ssh_hosts: Any, remote_tree: Path, local_folder: Path, connect_to: Any
) -> None:
    host = slow(ssh_hosts).host
    target, connection = resolve(host), connect_to(host)
    (remote_tree / "big").write_bytes(os.urandom(40 << 20))
    started = threading.Event()

    def stop() -> None:
        assert started.wait(120)
        running.end_transfers({target})

    stopper = threading.Thread(daemon=True, target=stop)
    stopper.start()
    with pytest.raises(Interrupted):
        pull(
            target,
            str(remote_tree),
            str(local_folder),
            names=[b"big"],
            on_progress=lambda done: started.set(),
            **connection,
        )
    stopper.join()
    assert (local_folder / ".tfdeploy-partial" / "big").stat().st_size > 0
    second_pull = pull(target, str(remote_tree), str(local_folder), names=[b"big"], **connection)
    assert (local_folder / "big").read_bytes() == (remote_tree / "big").read_bytes()
    assert second_pull < 40 << 20


def test_missing_source_and_full_local_disk_are_named(
    ssh_hosts: Any, remote_tree: Path, local_folder: Path, connect_to: Any
) -> None:
    host = ssh_hosts.host("n1").host
    with pytest.raises(HostFailed, match="does not exist any more") as caught:
        pull(resolve(host), str(remote_tree / "nothing"), str(local_folder), **connect_to(host))
    assert caught.value.where == f"n1: {remote_tree / 'nothing'}"


def test_pull_through_noisy_login_shell_and_jump_host(
    ssh_hosts: Any, remote_tree: Path, local_folder: Path, connect_to: Any
) -> None:
    jump = ssh_hosts.host("jump")
    noisy = ssh_hosts.host(
        "n2", "ForceCommand echo hello; printf noise; eval $SSH_ORIGINAL_COMMAND"
    )
    host = replace(noisy.host, jump=f"{jump.host.user}@127.0.0.1:{jump.port}")
    pull(resolve(host), str(remote_tree), str(local_folder), **connect_to(host))
    assert contents(local_folder) == contents(remote_tree)
