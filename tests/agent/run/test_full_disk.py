"""Test a task that fills the disk and dies because of that. The end of the task is recorded and
reported although the disk stays full.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.agent.cluster import NewClient, NewCluster
from support.needs import require
from tfdeploy.agent.host import atomic, reserved_space
from tfdeploy.agent.run import folder, unwritten_ends
from tfdeploy.agent.serve.run import status as run_status

FILLS = (
    "while [ ! -e go ]; do sleep 0.05; done; head -c 8000000 /dev/zero >checkpoint || exit 5; "
    "exit 0"
)
MANY = (
    "while [ ! -e go ]; do sleep 0.05; done; i=0; while (: >file$i) 2>/dev/null; do i=$((i + "
    "1)); done; exit 5"
)
FOREVER = ["sleep", "1000"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of 2 MB and 200 files at the path that becomes the workdir of n1."""
    place = tmp_path / "n1"
    place.mkdir()
    require("mounts")
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m,nr_inodes=200,mode=700", "tmpfs", str(place)],
        check=True,
    )
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def is_full(disk: Path) -> bool:
    """Return whether the disk is full. A few free blocks or files are allowed.

    They become free at the end of a run, when the run's secrets are deleted and the minder (the
    process that looks after the run) gives back the space that it has reserved.
    """
    about = os.statvfs(disk)
    return about.f_bavail <= 8 or about.f_ffree <= 4


@pytest.mark.fault("44 a checkpoint that fills the disk, or takes its last inode")
@pytest.mark.parametrize("script", [FILLS, MANY], ids=["blocks", "inodes"])
def test_a_task_that_dies_of_a_full_disk_has_died(
    small_disk: Path, hosts: NewCluster, script: str
) -> None:
    cluster = hosts("n1", "n2")
    tasks = {
        "worker:0": ("n2", FOREVER),
        "worker:1": ("n1", ["sh", "-c", script]),
        "ps:0": ("n1", FOREVER),
    }
    cluster.launch("r1", tasks)
    cluster.wait_state("r1", "worker:1", "running")
    paths = cluster.hosts["n1"].paths("r1")
    Path(paths.cwd, "go").touch()
    states = cluster.wait_ended("r1")
    assert is_full(small_disk)
    # The second text, if the last lines of the task could not be written.
    died = "worker:1 on n1 failed with exit code 5"
    reasons = {state.abort_reason for state in states.values()}
    assert reasons in ({died}, {f"{died}: the disk of n1 was full"})
    assert {row["task"]: row["outcome"] for row in run_status.describe_run(paths)["tasks"]} == {
        "worker:1": "failed",
        "ps:0": "stopped",
    }
    assert cluster.status("r1", "worker:0").outcome == "stopped" and cluster.alive("r1") == []


@pytest.mark.fault("44 starts again on a disk that stays full")
def test_it_starts_again_by_the_rule_and_gives_up(small_disk: Path, hosts: NewCluster) -> None:
    cluster = hosts("n1", "n2")
    tasks = {"worker:0": ("n2", FOREVER), "worker:1": ("n1", ["sh", "-c", FILLS])}
    again = {
        "recovery": {"worker:1": ("alone", False)},
        "restart_max": 2,
        "restart_backoff_s": [0.1, 0.1],
    }
    cluster.launch("r1", tasks, **again)
    cluster.wait_state("r1", "worker:1", "running")
    Path(cluster.hosts["n1"].paths("r1").cwd, "go").touch()
    cluster.wait_ended("r1")
    assert is_full(small_disk)
    status = cluster.status("r1", "worker:1")
    assert (status.outcome, status.attempt, status.exit_code) == ("gave_up", 3, 5)


def test_a_stop_is_written_though_the_disk_is_full(small_disk: Path, hosts: NewCluster) -> None:
    cluster = hosts("n1")
    script = FILLS.replace("|| exit 5; exit 0", "; exec sleep 1000")
    cluster.launch("r1", {"worker:0": ("n1", ["sh", "-c", script])})
    cluster.wait_state("r1", "worker:0", "running")
    paths = cluster.hosts["n1"].paths("r1")
    Path(paths.cwd, "go").touch()
    cluster.wait_until(lambda: is_full(small_disk))
    assert (
        cluster.hosts["n1"].call("run.stop", run="r1", job=cluster.job, grace_s=1.0)["survivors"]
        == []
    )
    state = cluster.wait_ended("r1")["n1"]
    assert (
        is_full(small_disk)
        and state.stop_requested
        and paths.status("worker:0").outcome == "stopped"
    )


def test_a_pid_is_looked_at_before_it_is_believed(
    small_disk: Path, hosts: NewCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Test that the pid in a status is checked before the status is believed. The disk is full and
    the reserved space is used up, so the status of a dead task still says that it is running.
    """
    monkeypatch.setattr(unwritten_ends, "PATIENCE_S", 0.5)
    cluster = hosts("n1")
    cluster.launch("r1", {"worker:0": ("n1", FOREVER)})
    status = cluster.wait_state("r1", "worker:0", "running")
    paths = cluster.hosts["n1"].paths("r1")
    assert run_status.task_status(paths, "worker:0").state == "running"
    for each in Path(paths.host_dir).rglob("*.room"):
        each.unlink()
    filled(small_disk)
    os.kill(status.pid, signal.SIGKILL)
    cluster.wait_until(lambda: not os.path.exists(f"/proc/{status.pid}"))
    seen = run_status.task_status(paths, "worker:0")
    assert paths.status("worker:0").state == "running" and (seen.state, seen.reason) == (
        "lost",
        unwritten_ends.REASON,
    )
    os.unlink(small_disk / "filler")
    assert cluster.wait_state("r1", "worker:0", "ended").outcome == "killed"
    assert run_status.task_status(paths, "worker:0").outcome == "killed"


@pytest.mark.parametrize("exhausted", ["blocks", "inodes"])
def test_a_job_can_be_locked_and_so_cleaned_on_a_full_disk(
    small_disk: Path, serve: NewClient, exhausted: str
) -> None:
    client = serve(at=small_disk)
    lock = {"job": "job", "operation": "clean", "holder": {"user": "ann"}, "wait_s": 0}
    fences = [client.call("lock", **lock)["value"]["fence"]]
    client.call("unlock", job="job")
    filled(small_disk) if exhausted == "blocks" else filled_with_files(small_disk)
    for _ in range(3):
        fences.append(client.call("lock", **lock)["value"]["fence"])
        client.call("unlock", job="job")
    assert fences == sorted(set(fences))


# --- the reserved space


def filled(disk: Path) -> None:
    with pytest.raises(OSError), (disk / "filler").open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)


def filled_with_files(disk: Path) -> None:
    with pytest.raises(OSError):
        for number in range(1000):
            (disk / f"file{number}").touch()


def test_room_is_used_again_and_again_and_readers_always_find_a_whole_file(
    small_disk: Path,
) -> None:
    path = str(small_disk / "status.json")
    reserved_space.create_reserve(path, reserved_space.STATUS_BYTES)
    reserved_space.write_json(path, {"n": 0})
    filled(small_disk)
    for number in range(1, 9):
        reserved_space.write_json(path, {"n": number, "reason": "x" * 90 * number})
        assert (atomic.read_json(path) or {})["n"] == number
    os.unlink(small_disk / "filler")
    reserved_space.write_json(path, {"n": 9})
    assert Path(path).read_bytes() == b'{"n":9}'


def test_one_that_was_killed_in_between_leaves_its_room(small_disk: Path) -> None:
    path = str(small_disk / "status.json")
    reserved_space.create_reserve(path, reserved_space.STATUS_BYTES)
    reserved_space.write_json(path, {"n": 0})
    os.link(path, path + ".old")
    filled(small_disk)
    # status.json now also has the name status.json.old, as if the process had been killed just
    # before the two renames by which the file and its reserve swap their names.
    reserved_space.write_json(path, {"n": 1})
    os.rename(path + reserved_space.ROOM, path + ".old")
    # The reserve now has the name status.json.old, as if the process had been killed between the
    # two renames.
    reserved_space.write_json(path, {"n": 2})
    reserved_space.write_json(path, {"n": 3})
    assert atomic.read_json(path) == {"n": 3} and sorted(os.listdir(small_disk)) == [
        "filler",
        "status.json",
        "status.json.room",
    ]


def test_without_room_it_is_refused_and_the_file_stays(small_disk: Path) -> None:
    path = str(small_disk / "status.json")
    reserved_space.write_json(path, {"n": 0})
    filled(small_disk)
    with pytest.raises(OSError):
        reserved_space.write_json(path, {"n": 1})
    assert atomic.read_json(path) == {"n": 0} and sorted(os.listdir(small_disk)) == [
        "filler",
        "status.json",
    ]


def test_a_journal_gets_its_room_once(small_disk: Path) -> None:
    path = str(small_disk / "journal")
    reserved_space.create_reserve(path, reserved_space.JOURNAL_BYTES)
    filled(small_disk)
    for number in range(2):
        reserved_space.append_line(path, {"n": number})
    assert [json.loads(line)["n"] for line in Path(path).read_text().splitlines()] == [0, 1]


def test_what_a_room_cannot_hold_takes_its_block(small_disk: Path) -> None:
    path = str(small_disk / "state.json")
    reserved_space.create_reserve(path, 100)
    filled(small_disk)
    reserved_space.write_json(path, {"n": "x" * 300})
    assert atomic.read_json(path) == {"n": "x" * 300}


@pytest.mark.parametrize("name", [each for each in folder.ORDERS if each not in ("abort", "stop")])
def test_order_without_reserved_space_fails_because_of_the_disk(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill(path: str, obj: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    monkeypatch.setattr(folder, "write_json", fill)
    with pytest.raises(OSError, match="No space left"):
        folder.RunPaths("/w/job/runs/r1/hosts/n1").write_minder_order(name)
