"""Test data sets on a host: a data set counts as complete only after its commit, and a folder that
tfdeploy has not created is never used for one.
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
from tfdeploy.agent import layout, listing, wire
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.host import disk, processes
from tfdeploy.agent.run import task_processes
from tfdeploy.agent.serve.call import Call, SessionContext
from tfdeploy.agent.serve.server import find_verb
from tfdeploy.model.answers.failures import format_advice


class Data:
    def __init__(self, workdir: Path) -> None:
        self.context = SessionContext(str(workdir), "")
        self.folder = workdir / "job" / "data" / "digits"

    def call(self, verb: str, **args: Any) -> Any:
        return find_verb(verb)(Call(self.context, {"job": "job", "name": "digits", **args}))

    def fill(self) -> str:
        (self.folder / "deep").mkdir(exist_ok=True)
        (self.folder / "deep" / "shard").write_bytes(b"123")
        os.utime(self.folder / "deep" / "shard", (5.9, 5.9))
        if not (self.folder / "link").is_symlink():
            (self.folder / "link").symlink_to("deep/shard")
        return listing.walk(str(self.folder)).digest()


def test_a_data_set_is_whole_only_after_its_commit(tmp_path: Path) -> None:
    data = Data(tmp_path)
    assert data.call("data.state") is None
    assert data.call("data.begin", bytes=3) == {"folder": str(data.folder)}
    digest = data.fill()
    partial = data.folder / "deep" / layout.PARTIAL / "shard9"
    partial.parent.mkdir()
    partial.write_bytes(b"half of a file that is gone")
    assert data.call("data.state") is None
    assert data.call("data.commit", digest="other") == {"digest": digest, "ok": False}
    assert data.call("data.state") is None
    assert data.call("data.commit", digest=digest) == {"digest": digest, "ok": True}
    assert data.call("data.state")["digest"] == digest and not partial.parent.exists()
    (data.folder / "extra").write_bytes(b"")
    assert data.call("data.state")["digest"] != digest
    data.call("data.begin", bytes=3)
    assert data.call("data.state") is None


def test_how_many_files_a_sync_would_delete(tmp_path: Path) -> None:
    data = Data(tmp_path)

    def losses(blob: bytes, digest: str = "other") -> tuple[int | None, int | None]:
        call = Call(
            data.context,
            {"job": "job", "name": "digits", "bytes": 3, "ask": True, "digest": digest},
            blob,
        )
        answer = find_verb("data.begin")(call)
        return answer.get("files"), answer.get("losing")

    coming = wire.hash_path("link") + wire.hash_path("new")
    assert losses(coming) == (None, None)  # the host has no data set yet
    data.call("data.begin", bytes=3)
    digest = data.fill()
    assert losses(coming) == (2, 1)  # the answer is the same after an interrupted sync
    data.call("data.commit", digest=digest)
    assert losses(b"") == (2, 0)
    assert losses(coming, digest) == (None, None)  # a sync of the same data set deletes nothing
    assert data.call("data.state")["digest"] == digest


@pytest.mark.parametrize("what", ["folder", "file", "link"])
def test_a_folder_that_is_not_ours_is_refused(tmp_path: Path, what: str) -> None:
    data = Data(tmp_path)
    data.folder.parent.mkdir(parents=True)
    if what == "folder":
        data.folder.mkdir()
    elif what == "file":
        data.folder.write_bytes(b"mine")
    else:
        data.folder.symlink_to(tmp_path)
    with pytest.raises(VerbError) as caught:
        data.call("data.begin", bytes=1)
    assert caught.value.code == "not_ours" and str(data.folder) in str(caught.value)


def test_data_without_room(tmp_path: Path) -> None:
    data = Data(tmp_path)
    with pytest.raises(VerbError) as caught:
        data.call("data.begin", bytes=1 << 60)
    assert caught.value.code == "disk" and caught.value.details["needed_bytes"] == 1 << 60
    assert caught.value.details["free_bytes"] <= disk.free_space("/").free_bytes + (1 << 50)
    assert not data.folder.exists()


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".hidden", "x" * 300, None, "a\nb"])
def test_names_are_checked_again_on_the_host(tmp_path: Path, name: Any) -> None:
    for args in ({"name": name}, {"job": name}):
        with pytest.raises(VerbError) as caught:
            Data(tmp_path).call("data.begin", **args)
        assert caught.value.code == "bad_name"


# --- under a live run


def data_of(cluster: Cluster, text: str = "old") -> Path:
    """Create the complete data set `digits` of the cluster's job on n1. Return its folder."""
    host = cluster.hosts["n1"]
    folder = Path(
        find_verb("data.begin")(Call(host.context, {"job": cluster.job, "name": "digits"}))[
            "folder"
        ]
    )
    (folder / "shard").write_text(text)
    committed = find_verb("data.commit")(
        Call(host.context, {"job": cluster.job, "name": "digits"})
    )["digest"]
    assert find_verb("data.commit")(
        Call(host.context, {"job": cluster.job, "name": "digits", "digest": committed})
    )["ok"]
    return folder


def refusal(cluster: Cluster, name: str = "digits", **args: Any) -> str | None:
    """Return why the host refuses to change the data set, or None if it does not refuse."""
    try:
        find_verb("data.begin")(
            Call(
                cluster.hosts["n1"].context, {"job": cluster.job, "name": name, "ask": True, **args}
            )
        )
    except VerbError as error:
        assert error.code == "live_run" and str(
            format_advice("n1", error.advice, error.details)
        ).startswith("`tfdeploy stop r1`")
        return str(error)
    return None


FOREVER = {"worker:0": ("n1", ["sleep", "1000"])}
WORDS = (
    "run r1 of job digits, launched by me@here, is alive on this host and reads the data set digits"
)


@pytest.mark.fault("25 a sync that would change data under a live run")
def test_data_is_not_changed_while_a_run_reads_it(hosts: NewCluster) -> None:
    cluster = hosts("n1")
    folder = data_of(cluster)
    assert refusal(cluster) is None
    cluster.prepare("r1", FOREVER)
    # The run r1 is prepared and may start at any moment, so the data set must not change.
    assert refusal(cluster) == WORDS
    cluster.each("run.start", "r1")
    cluster.each("run.commit", "r1")
    assert (
        refusal(cluster)
        == refusal(cluster, ask=False)
        == refusal(cluster, digest="another")
        == WORDS
    )
    state = find_verb("data.state")(
        Call(cluster.hosts["n1"].context, {"job": cluster.job, "name": "digits"})
    )
    assert state is not None and refusal(cluster, digest=state["digest"]) is None
    assert (folder / "shard").read_text() == "old" and refusal(cluster, name="another") is None
    cluster.each("run.stop", "r1")
    assert refusal(cluster) is None and refusal(cluster, ask=False) is None


def test_a_run_that_names_its_data_does_not_hold_another_set(hosts: NewCluster) -> None:
    cluster = hosts("n1")
    data_of(cluster)
    cluster.prepare("r1", FOREVER)
    plan = Path(cluster.hosts["n1"].paths("r1").run_dir, "plan.json")
    plan.write_text(
        json.dumps({**json.loads(plan.read_text()), "data": {"letters": "data/letters"}})
    )
    assert refusal(cluster) is None


def test_processes_whose_minder_and_supervisor_were_killed_still_read_it_and_a_dead_run_does_not(
    hosts: NewCluster,
) -> None:
    cluster = hosts("n1")
    data_of(cluster)
    cluster.launch("r1", FOREVER)
    paths = cluster.hosts["n1"].paths("r1")
    tasks = cluster.alive("r1")
    # The supervisor (the task's parent process) is stopped first, because it would end the task.
    os.kill(task_processes.read_supervisor(paths, "worker:0").pid, signal.SIGSTOP)
    for who in (
        task_processes.read_minder(paths),
        task_processes.read_supervisor(paths, "worker:0"),
    ):
        processes.send_signal(who, signal.SIGKILL)
    said = refusal(cluster)
    # The processes may have ended between the kills and the call.
    if cluster.alive("r1"):
        assert said == WORDS
    for pid in tasks:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    cluster.wait_until(lambda: not cluster.alive("r1"))
    assert refusal(cluster) is None
