"""Test what a host refuses of data sets, what a sync would delete, and that the data that a run
reads stays as it is.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from support.agent.cluster import Cluster, NewCluster
from support.agent.datasets import Host
from tfdeploy.agent import listing, wire
from tfdeploy.agent.call import SessionContext
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.host import processes
from tfdeploy.agent.run import task_processes


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(SessionContext(str(tmp_path / "workdir"), ""))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Return a folder with the files `deep/shard` and `link`."""
    root = tmp_path / "source"
    (root / "deep").mkdir(parents=True)
    (root / "deep" / "shard").write_bytes(b"old")
    (root / "link").symlink_to("deep/shard")
    return root


def bring(host: Host, source: Path) -> None:
    host.lack(source)
    host.copy_to_staging()
    assert host.commit()


def test_how_many_files_a_sync_would_delete(host: Host, source: Path) -> None:
    def losses(blob: bytes, digest: str = "other") -> tuple[int, int]:
        answer = host.call("data.losing", blob, digest=digest)
        return answer["files"], answer["losing"]

    coming = wire.hash_path("link") + wire.hash_path("new")
    assert losses(coming) == (0, 0)  # the host has no data set yet
    bring(host, source)
    assert losses(coming) == (2, 1)
    assert losses(b"") == (2, 0)
    # A sync of the same data set deletes nothing.
    assert losses(coming, host.call("data.state")["digest"]) == (0, 0)


def test_files_that_rsync_brought_count_once_they_are_complete(host: Host, source: Path) -> None:
    (source / "other").write_bytes(b"123")
    host.lack(source)
    host.copy_to_staging()
    (host.staging / "other").write_bytes(b"12")
    assert not host.commit() and host.call("data.state") is None
    answer = host.call("data.lack", host.rows.pack())
    staged = host.marked_paths(answer["staged"])
    assert (staged, answer["present"]) == (["deep/shard"], None)
    host.copy_to_staging()
    assert host.commit()
    assert host.call("data.state")["digest"] == listing.walk(str(source)).digest()
    assert host.call("data.lack", host.rows.pack())["present"] == str(host.folder)


def test_staged_file_that_belongs_to_a_complete_version_too_is_not_written_to(
    host: Host, source: Path, tmp_path: Path
) -> None:
    host.lack(source)
    host.copy_to_staging()
    (tmp_path / "complete").hardlink_to(host.staging / "deep" / "shard")
    host.lack(source)
    assert not (host.staging / "deep" / "shard").exists()


@pytest.mark.parametrize("what", ["folder", "file", "link"])
def test_a_folder_that_is_not_ours_is_refused(
    host: Host, source: Path, tmp_path: Path, what: str
) -> None:
    host.folder.parent.mkdir(parents=True)
    if what == "folder":
        host.folder.mkdir()
    elif what == "file":
        host.folder.write_bytes(b"mine")
    else:
        host.folder.symlink_to(tmp_path)
    for asked in (lambda: host.lack(source), lambda: host.call("data.losing", digest="")):
        with pytest.raises(VerbError) as caught:
            asked()
        assert caught.value.code == "not_ours" and str(host.folder) in str(caught.value)


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".hidden", "x" * 300, None, "a\nb"])
def test_names_are_checked_again_on_the_host(host: Host, name: Any) -> None:
    for args in ({"name": name}, {"job": name}):
        with pytest.raises(VerbError) as caught:
            host.call("data.lack", **args)
        assert caught.value.code == "bad_name"


# --- under a live run

FOREVER = {"worker:0": ("n1", ["sleep", "1000"])}


def data_of(cluster: Cluster, source: Path) -> Host:
    """Bring the data set `digits` of the cluster's job to n1. Return the host."""
    host = Host(cluster.hosts["n1"].context, cluster.job)
    bring(host, source)
    return host


def is_held(host: Host, source: Path, text: str) -> bool:
    """Sync other content, and return whether the data set's folder still has the content before."""
    before = (host.folder / "deep" / "shard").read_text()
    (source / "deep" / "shard").write_text(text)
    bring(host, source)
    # Installs a version that waited for the end of a run.
    host.call("data.state")
    after = (host.folder / "deep" / "shard").read_text()
    assert after in (before, text)
    return after == before


@pytest.mark.fault("25 a sync that would change data under a live run")
def test_data_is_not_changed_while_a_run_reads_it(hosts: NewCluster, source: Path) -> None:
    cluster = hosts("n1")
    host = data_of(cluster, source)
    assert not is_held(host, source, "first")
    cluster.prepare("r1", FOREVER)
    # The run r1 is prepared and may start at any moment, so the data set must not change.
    assert is_held(host, source, "second one")
    cluster.each("run.start", "r1")
    cluster.each("run.commit", "r1")
    assert is_held(host, source, "third")
    cluster.each("run.stop", "r1")
    assert not is_held(host, source, "fourth one")


def test_a_run_that_names_its_data_does_not_hold_another_set(
    hosts: NewCluster, source: Path
) -> None:
    cluster = hosts("n1")
    host = data_of(cluster, source)
    cluster.prepare("r1", FOREVER)
    plan = Path(cluster.hosts["n1"].paths("r1").run_dir, "plan.json")
    plan.write_text(
        json.dumps({**json.loads(plan.read_text()), "data": {"letters": "data/letters"}})
    )
    assert not is_held(host, source, "other")


def test_processes_whose_minder_and_supervisor_were_killed_still_read_it_and_a_dead_run_does_not(
    hosts: NewCluster, source: Path
) -> None:
    cluster = hosts("n1")
    host = data_of(cluster, source)
    cluster.launch("r1", FOREVER)
    paths = cluster.hosts["n1"].paths("r1")
    tasks = cluster.alive("r1")
    # The supervisor (the task's parent process) is stopped first, because it would end the task.
    os.kill(task_processes.find_live_supervisor(paths, "worker:0").pid, signal.SIGSTOP)
    for who in (
        task_processes.read_minder(paths),
        task_processes.find_live_supervisor(paths, "worker:0"),
    ):
        processes.send_signal(who, signal.SIGKILL)
    held = is_held(host, source, "second one")
    # The processes may have ended between the kills and the call.
    if cluster.alive("r1"):
        assert held
    for pid in tasks:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    cluster.wait_until(lambda: not cluster.alive("r1"))
    assert not is_held(host, source, "third")
