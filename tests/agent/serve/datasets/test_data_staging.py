"""Test a data set that arrives by a broadcast (hosts pass data on to each other): which pieces a
host lacks, where it stores them at first, and how it installs the data set. While a run reads the
data set, its files do not change.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.agent.cluster import Cluster, NewCluster
from support.agent.datasets import Host
from tfdeploy.agent import listing
from tfdeploy.agent.call import SessionContext
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.listing import Listing

OLD_NS = 1_400_000_000_123_456_789


@pytest.fixture
def host(tmp_path: Path) -> Host:
    workdir = tmp_path / "workdir"
    workdir.mkdir(mode=0o700)
    return Host(SessionContext(str(workdir), ""))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    root = tmp_path / "source"
    (root / "deep" / "er").mkdir(parents=True)
    (root / "deep" / "er" / "shard\n1").write_bytes(b"12")
    (root / "-x").write_bytes(os.urandom(600_000))
    (root / "empty file").write_bytes(b"")
    (root / "empty").mkdir()
    (root / "link").symlink_to("deep/er")
    (root / "twin").hardlink_to(root / "-x")
    with (root / "holes").open("wb") as stream:
        stream.truncate(4 << 20)
    (root / "readonly").mkdir()
    (root / "readonly" / "file").write_bytes(b"r")
    (root / "readonly" / "file").chmod(0o444)
    (root / "readonly").chmod(0o500)
    for path in (root / "deep", root / "empty", root / "-x", root):
        os.utime(path, ns=(OLD_NS, OLD_NS), follow_symlinks=False)
    return root


def same(source: Path, folder: Path) -> bool:
    """Return whether two folders have the same content, and are equal in everything else that rsync
    -aH compares.
    """
    one, other = (listing.walk(str(each)) for each in (source, folder))
    rows = [[row._replace(allocated=0) for row in each if row.path] for each in (one, other)]
    texts = [
        [(root / os.fsdecode(row.path)).read_bytes() for row in one if row.kind == "f"]
        for root in (source, folder)
    ]
    return rows[0] == rows[1] and texts[0] == texts[1]


def test_all_of_a_set_arrives_as_it_is(host: Host, source: Path) -> None:
    assert host.call("data.state") is None
    assert host.lack(source) == ["-x", "deep/er/shard\n1", "empty file", "holes", "readonly/file"]
    assert not host.folder.exists()
    host.bring()
    assert not host.folder.exists() and host.call("data.state") is None
    assert host.commit()
    assert same(source, host.folder)
    assert os.stat(host.folder).st_mtime_ns == OLD_NS
    assert os.stat(host.folder / "holes").st_blocks == 0
    rows = listing.walk(str(source))
    assert host.call("data.state") == {
        "digest": rows.digest(),
        "attributes": rows.attributes_digest(),
        "parts": "",
    }
    assert sorted(os.listdir(host.folder.parent)) == ["digits", "digits.json", "digits.tfdeploy"]
    assert host.lack(source) == []
    assert host.commit()


def test_only_what_changed_is_brought_and_the_rest_is_not_touched(host: Host, source: Path) -> None:
    host.sync(source)
    before = {path: path.lstat().st_ino for path in host.folder.rglob("*")}
    (source / "deep" / "er" / "shard\n1").unlink()
    (source / "deep" / "new").write_bytes(b"3")
    (source / "-x").chmod(0o600)
    (source / "link").unlink()
    (source / "link").symlink_to("deep")
    (source / "empty").rmdir()
    (source / "empty").write_bytes(b"a file now")
    shutil.rmtree(source / "deep" / "er")
    assert host.lack(source) == ["deep/new", "empty"]
    host.bring()
    assert host.commit() and same(source, host.folder)
    after = {path: path.lstat().st_ino for path in host.folder.rglob("*")}
    kept = {
        host.folder / name
        for name in ("-x", "twin", "holes", "readonly", "readonly/file", "empty file", "deep")
    }
    assert {path for path in before if after.get(path) == before[path]} >= kept


def test_hard_links_are_made_and_undone(host: Host, source: Path) -> None:
    host.sync(source)
    (source / "twin").unlink()
    (source / "twin").write_bytes((source / "-x").read_bytes()[:-1] + b"?")
    (source / "other").hardlink_to(source / "holes")
    host.sync(source)
    assert same(source, host.folder)


def test_a_single_file(host: Host, source: Path) -> None:
    host.sync(source / "-x")
    assert os.listdir(host.folder) == ["-x"]
    (source / "-x").rename(source / "renamed")
    host.sync(source / "renamed")
    assert os.listdir(host.folder) == ["renamed"]


def test_a_sync_that_ended_half_way_goes_on(host: Host, source: Path) -> None:
    host.sync(source)
    (source / "-x").write_bytes(os.urandom(3_000_000))
    digest = host.call("data.state")["digest"]
    host.lack(source)
    assert host.bring(most=5) == 5
    assert not host.commit()
    # The host still has the old data set, and it is complete.
    assert host.call("data.state")["digest"] == digest
    host.lack(source)
    assert host.bring() == 12 - 5
    assert host.commit() and same(source, host.folder)


def test_halves_of_what_is_no_longer_wanted_are_removed(host: Host, source: Path) -> None:
    host.lack(source)
    host.bring(most=2)
    shutil.rmtree(source / "deep")
    (source / "-x").unlink()
    (source / "deep").write_bytes(b"a file now")
    host.sync(source)
    assert same(source, host.folder)
    assert sorted(os.listdir(host.folder.parent)) == ["digits", "digits.json", "digits.tfdeploy"]


def test_a_commit_that_was_killed_goes_on(
    host: Host, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.sync(source)
    for name in ("a", "b", "c"):
        (source / name).write_bytes(os.urandom(300_000))
    host.lack(source)
    host.bring()
    replace: Callable[..., None] = os.replace
    calls = []

    def killed(*names: Any) -> None:
        calls.append(names)
        # The first call only writes the record of the data set.
        if len(calls) == 3:
            raise KeyboardInterrupt
        replace(*names)

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            host.commit()
    assert host.call("data.state") is None
    assert len(host.lack(source)) == 1
    host.bring()
    assert host.commit() and same(source, host.folder)


@pytest.mark.parametrize("kept", [0, 1 << 60])
def test_the_disk_is_looked_at_first(host: Host, source: Path, kept: int) -> None:
    if not kept:
        # A hole in a file uses no disk space.
        os.truncate(source / "holes", 1 << 42)
        assert "holes" in host.lack(source)
        return
    with pytest.raises(VerbError) as caught:
        host.lack(source, reserve=kept)
    assert caught.value.code == "disk" and "reserve" in str(caught.value)


def test_a_foreign_listing_is_refused(host: Host) -> None:
    with pytest.raises(VerbError) as caught:
        host.call("data.lack", b"nonsense")
    assert caught.value.code == "bad_listing"
    with pytest.raises(VerbError) as caught:
        host.call("data.commit")
    assert caught.value.code == "not_begun"
    assert Listing().pack()


# --- under a live run


def test_a_live_run_keeps_what_it_reads(hosts: NewCluster, source: Path) -> None:
    cluster: Cluster = hosts("n1")
    host = Host(cluster.hosts["n1"].context, cluster.job)
    host.sync(source)
    cluster.launch("r1", {"worker:0": ("n1", ["sleep", "1000"])})
    before = {path: path.lstat() for path in host.folder.rglob("*")}
    (source / "-x").write_bytes(b"new")
    (source / "holes").chmod(0o600)
    host.sync(source)
    assert {path: path.lstat() for path in host.folder.rglob("*")}.keys() == before.keys()
    assert (host.folder / "-x").stat().st_size == 600_000 and not same(source, host.folder)
    # The host has everything, so nothing more is sent.
    assert host.call("data.state")["digest"] == listing.walk(str(source)).digest()
    cluster.each("run.stop", "r1")
    assert host.call("data.state")["digest"] == listing.walk(str(source)).digest()
    assert same(source, host.folder)
    assert sorted(os.listdir(host.folder.parent)) == ["digits", "digits.json", "digits.tfdeploy"]
