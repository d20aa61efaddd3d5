"""Test programs that replace the symbolic link to a `keep` folder by something else. The next
attempt and the next run must still find the files that the program saved.
"""

from __future__ import annotations

import errno
import os
import signal
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from support.agent.cluster import Cluster, NewCluster
from tfdeploy.agent import layout
from tfdeploy.agent.call import Call
from tfdeploy.agent.host import processes
from tfdeploy.agent.host.atomic import write_json
from tfdeploy.agent.run import folder as run_folder
from tfdeploy.agent.run import keep_links, task_processes
from tfdeploy.agent.serve import lock, probe

AGAIN: dict[str, Any] = {"restart_max": 3, "restart_backoff_s": [0.1, 0.4], "keep": ["out/logs"]}
WIPES = {
    "removes it": "rm -rf out/logs && mkdir out/logs",
    "removes the folder above": "rm -rf out && mkdir -p out/logs",
    "renames it": "mv out/logs out/before && mkdir out/logs",
}
SAVES = "echo new > out/logs/model"
# The task waits for the file `go`, because the launch would fail if the task died before the run is
# committed.
COMMITTED = "until [ -e go ]; do sleep 0.02; done"


def keep_of(cluster: Cluster, host: str = "n1") -> Path:
    return Path(layout.keep_dir(cluster.hosts[host].context.workdir, cluster.job, "out"))


def seeded(cluster: Cluster, host: str = "n1") -> Path:
    """Make the job's `keep` folder `logs` with a file of an earlier run. Return its path."""
    logs = keep_of(cluster, host) / "logs"
    logs.mkdir(parents=True)
    (logs / "model").write_text("old\n")
    os.utime(logs / "model", (10**9, 10**9))
    return logs


def go(cluster: Cluster) -> None:
    for host in cluster.hosts.values():
        Path(host.paths("r1").cwd, "go").touch()


def read_files(folder: Path) -> dict[str, str]:
    return {
        str(each.relative_to(folder)): each.read_text()
        for each in sorted(folder.rglob("*"))
        if each.is_file()
    }


@pytest.mark.parametrize("wipe", WIPES.values(), ids=WIPES)
def test_what_was_saved_there_is_kept_and_the_next_attempt_finds_the_link(
    hosts: NewCluster, wipe: str
) -> None:
    cluster = hosts("n1")
    logs = seeded(cluster)
    first = (
        f"[ $TFDEPLOY_TASK_ATTEMPT = 1 ] && {{ cat out/logs/model; {wipe} && {SAVES}; "
        f"{COMMITTED}; kill -9 $$; }}"
    )
    words = f"{first}; [ -L out/logs ] && cat out/logs/model"
    cluster.launch(
        "r1",
        {"worker:0": ("n1", ["sh", "-c", words])},
        recovery={"worker:0": ("alone", False)},
        **AGAIN,
    )
    go(cluster)
    cluster.wait_ended("r1")
    log = cluster.log("r1", "worker:0").splitlines()
    assert (log[0], log[-1]) == ("old", "new")
    assert log[1].startswith(
        "tfdeploy: out/logs was replaced by a folder of the program, which was moved into "
        "`keep`, and the "
    )
    assert (logs / "model").read_text() == "new\n"
    aside = Path(log[1].split("the earlier folder in `keep` was moved to ")[1].split(";")[0])
    assert (aside.parent, read_files(aside)) == (logs.parent, {"model": "old\n"})


def kill_all(cluster: Any, run: str) -> list[int]:
    """Kill the run's processes and return their pids. A process that starts during the call is
    found by the next call.
    """
    pids = list(cluster.alive(run))
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return pids


@pytest.mark.parametrize("who", ["supervisor", "all"])
def test_it_is_kept_also_when_the_supervisor_is_killed(hosts: NewCluster, who: str) -> None:
    cluster = hosts("n1")
    logs = seeded(cluster)
    first = f"{WIPES['removes it']} && {SAVES} && touch wiped; sleep 1000"
    words = f"[ $TFDEPLOY_TASK_ATTEMPT = 2 ] || {{ {first}; }}; cat out/logs/model"
    recovery = {"worker:0": ("alone", False)}
    cluster.launch("r1", {"worker:0": ("n1", ["sh", "-c", words])}, recovery=recovery, **AGAIN)
    at = cluster.hosts["n1"].paths("r1")
    cluster.wait_until(lambda: Path(at.cwd, "wiped").exists())
    killed = [
        task_processes.find_live_supervisor(at, "worker:0"),
        *([task_processes.read_minder(at)] if who == "all" else []),
    ]
    for one in killed:
        processes.send_signal(one, signal.SIGKILL)
    if who == "supervisor":
        cluster.wait_ended("r1")
        assert cluster.log("r1", "worker:0").endswith("the link to `keep` is restored\nnew\n")
    # No process of the run is left to repair the link. So the next launch of the job must find the
    # files.
    else:
        cluster.wait_until(lambda: not kill_all(cluster, "r1"))
        host = cluster.hosts["n1"]
        asked = {"job": cluster.job, "keep": ["out/logs"], "gpus": "none"}
        # A probe does not hold the job's lock, so it must not change files.
        assert probe.probe_host(Call(host.context, asked))["keep"][0]["newest"] == 10**9
        lock.acquire_lock(Call(host.context, {"job": cluster.job}))
        facts = probe.probe_host(Call(host.context, asked))
        lock.release_lock(Call(host.context, {"job": cluster.job}))
        assert facts["keep"][0]["newest"] > 10**9
        assert any(said.startswith("run r1: out/logs was replaced") for said in facts["problems"])
    assert (logs / "model").read_text() == "new\n"


def test_a_launch_that_failed_does_not_replace_what_an_earlier_run_saved(hosts: NewCluster) -> None:
    cluster = hosts("n1")
    logs = seeded(cluster)
    words = f"{WIPES['removes it']}; {SAVES}; touch saved; sleep 1000"
    cluster.prepare("r1", {"worker:0": ("n1", ["sh", "-c", words])}, keep=["out/logs"])
    cluster.each("run.start", "r1")
    cluster.wait_until(lambda: Path(cluster.hosts["n1"].paths("r1").cwd, "saved").exists())
    cluster.each("run.abort", "r1", reason="rolled back", purge=True)
    assert read_files(logs.parent) == {"logs/model": "old\n"}


def test_what_a_task_saved_before_the_commit_is_kept_at_the_end(hosts: NewCluster) -> None:
    cluster = hosts("n1")
    logs = seeded(cluster)
    cluster.prepare(
        "r1",
        {"worker:0": ("n1", ["sh", "-c", f"{WIPES['removes it']}; {SAVES}"])},
        keep=["out/logs"],
    )
    cluster.each("run.start", "r1")
    cluster.wait_state("r1", "worker:0", "ended")
    assert (logs / "model").read_text() == "old\n"
    cluster.each("run.commit", "r1")
    cluster.wait_ended("r1")
    assert (logs / "model").read_text() == "new\n"
    assert "moved into `keep`" in cluster.log("r1", "worker:0")


def test_a_gang_starts_again_from_what_the_chief_saved_in_its_place(
    hosts: NewCluster, tmp_path: Path
) -> None:
    cluster = hosts("n1", "n2")
    logs = {name: seeded(cluster, name) for name in cluster.hosts}
    first = f"{WIPES['removes it']} && {SAVES} && {COMMITTED}; exit 1"
    # The run ends when the chief ends. So the chief waits until the other task has restarted.
    has_read = tmp_path / "has-read"
    wait = f"until [ -e {has_read} ]; do sleep 0.05; done"
    chief = f"[ $TFDEPLOY_TASK_ATTEMPT = 1 ] && {{ {first}; }}; cat out/logs/model; {wait}"
    other = (
        f"[ $TFDEPLOY_TASK_ATTEMPT = 1 ] && exec sleep 1000; cat out/logs/model; touch {has_read}"
    )
    tasks = {"worker:0": ("n1", ["sh", "-c", chief]), "worker:1": ("n2", ["sh", "-c", other])}
    gang = dict.fromkeys(tasks, ("gang", True))
    cluster.launch("r1", tasks, recovery=gang, supply_from="n1", finish_grace_s=60.0, **AGAIN)
    go(cluster)
    cluster.wait_ended("r1")
    assert [cluster.log("r1", task).splitlines()[-1] for task in tasks] == ["new", "new"]
    assert (logs["n2"] / "model").read_text() == "new\n"


def test_two_tasks_in_one_folder_that_both_replace_it(hosts: NewCluster) -> None:
    cluster = hosts("n1")
    logs = seeded(cluster)
    own_turn = '[ "$(cat out/logs/model)" = "$((TFDEPLOY_TASK_INDEX - 1))" ]'
    waits = f"[ $TFDEPLOY_TASK_INDEX = 0 ] || until {own_turn}; do sleep 0.01; done 2>/dev/null"
    makes = "new=out/new-$TFDEPLOY_TASK_INDEX; mkdir $new; echo $TFDEPLOY_TASK_INDEX > $new/model"
    words = f"{waits}; {makes}; until mv -T $new out/logs 2>/dev/null; do rm -rf out/logs; done"
    tasks = {f"worker:{n}": ("n1", ["sh", "-c", words]) for n in range(3)}
    cluster.launch("r1", tasks, keep=["out/logs"], finish_grace_s=10.0)
    cluster.wait_ended("r1")
    assert (logs / "model").read_text() == "2\n"
    assert os.path.islink(os.path.join(cluster.hosts["n1"].paths("r1").cwd, "out/logs"))
    assert "old\n" in read_files(logs.parent).values()


# --- other things in place of a link, and a process that dies between two steps of a restore


class Left:
    """A run whose task has ended, and the files that its program has left."""

    def __init__(self, root: Path) -> None:
        self.paths = run_folder.RunPaths(layout.host_dir(str(root), "job", "r1", "n1"))
        self.keep = Path(layout.keep_dir(str(root), "job", ""))
        self.logs, self.place = self.keep / "logs", Path(self.paths.cwd, "logs")
        self.logs.mkdir(parents=True)
        (self.logs / "model").write_text("old")
        os.utime(self.logs / "model", (10**9, 10**9))
        self.place.parent.mkdir(parents=True)
        Path(self.paths.host_dir).mkdir(parents=True)
        write_json(self.paths.file("knowledge.json"), {"committed": True})
        self.place.symlink_to(self.logs)

    def replaced(self, files: dict[str, str], at: float | None = None) -> None:
        self.place.unlink()
        self.place.mkdir()
        for name, text in files.items():
            (self.place / name).write_text(text)
            if at is not None:
                os.utime(self.place / name, (at, at))

    def restore(self) -> str:
        return "\n".join(keep_links.restore_keep_links(self.paths, ["logs"]))

    def aside(self) -> list[Any]:
        beside = sorted(each for each in self.keep.iterdir() if each.name.startswith("logs.aside-"))
        return [
            read_files(each) if each.is_dir() and not each.is_symlink() else each for each in beside
        ]


@pytest.fixture
def left(tmp_path: Path) -> Left:
    return Left(tmp_path)


def test_a_link_that_is_there_is_left_alone(left: Left) -> None:
    assert left.restore() == "" and read_files(left.keep) == {"logs/model": "old"}


def test_a_removed_link_is_there_again(left: Left) -> None:
    left.place.unlink()
    assert left.restore() == "logs was removed by the program; the link to `keep` is restored"
    assert read_files(left.place) == {"model": "old"}


def test_an_empty_folder_does_not_hide_a_checkpoint(left: Left) -> None:
    left.replaced({})
    (left.place / "plots").mkdir()
    assert (
        "replaced by an empty folder, which was removed; the folder in `keep` was not changed"
        in left.restore()
    )
    assert read_files(left.place) == {"model": "old"} and left.aside() == []


def test_something_newer_in_keep_is_not_hidden(left: Left) -> None:
    left.replaced({"model": "older still"}, at=10**8)
    assert "that is older than the one in `keep`" in left.restore()
    assert read_files(left.place) == {"model": "old"} and left.aside() == [{"model": "older still"}]


def test_nothing_is_set_aside_where_nothing_was_kept(left: Left) -> None:
    (left.logs / "model").unlink()
    left.replaced({"model": "new"})
    assert left.restore().endswith("which was moved into `keep`; the link to `keep` is restored")
    assert read_files(left.keep) == {"logs/model": "new"}


def test_a_file_in_its_place_goes_beside(left: Left) -> None:
    left.place.unlink()
    left.place.write_text("a file")
    assert "replaced by a file" in left.restore()
    assert read_files(left.place) == {"model": "old"}
    assert [each.read_text() for each in left.aside()] == ["a file"]


def test_a_link_elsewhere_is_not_followed(left: Left, tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    (tmp_path / "scratch" / "model").write_text("elsewhere")
    left.place.unlink()
    left.place.symlink_to(tmp_path / "scratch")
    assert f"replaced by a link to {tmp_path}/scratch" in left.restore()
    assert read_files(left.place) == {"model": "old"} and read_files(tmp_path / "scratch") == {
        "model": "elsewhere"
    }
    assert [os.readlink(each) for each in left.aside()] == [f"{tmp_path}/scratch"]


def test_a_folder_above_that_is_a_link_is_not_followed(left: Left, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    Path(left.paths.cwd, "out").symlink_to(tmp_path / "elsewhere")
    said = keep_links.restore_keep_links(left.paths, ["out/logs"])[0]
    assert "which cannot be restored: " in said and "a link is in the way" in said
    assert list((tmp_path / "elsewhere").iterdir()) == []


def dies_at(step: int, far: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise KeyboardInterrupt instead of making the change with number `step`, as if the process
    was killed at that point.

    A change to the path `far` fails with the error of a path on another file system.
    """
    steps = iter(range(100))

    def dying(change: Any) -> Any:
        def call(*words: Any, **more: Any) -> None:
            if next(steps) == step:
                raise KeyboardInterrupt
            if far in words:
                raise OSError(errno.EXDEV, "Invalid cross-device link")
            change(*words, **more)

        return call

    for name in ("rename", "symlink"):
        monkeypatch.setattr(os, name, dying(getattr(os, name)))


@pytest.mark.parametrize("other_disk", [False, True], ids=["one file system", "two file systems"])
def test_after_a_death_at_any_step_it_goes_on(
    left: Left, monkeypatch: pytest.MonkeyPatch, other_disk: bool
) -> None:
    for step in range(10):
        left.replaced({"model": f"new {step}"}, at=2 * 10**9 + step)
        died = False
        with monkeypatch.context() as patch:
            dies_at(step, str(left.place) if other_disk else "", patch)
            try:
                left.restore()
            except KeyboardInterrupt:
                died = True
        left.restore()
        assert read_files(left.place) == {"model": f"new {step}"}
        assert {text for each in left.aside() for text in each.values()} >= {
            "old",
            *(f"new {n}" for n in range(step)),
        }
        if not died:
            break
    assert not died and step >= 3


def test_two_at_once_take_it_in_once(left: Left) -> None:
    left.replaced({"model": "new"})
    said: list[str] = []
    both = [
        threading.Thread(daemon=True, target=lambda: said.append(left.restore())) for _ in range(2)
    ]
    for each in both:
        each.start()
    for each in both:
        each.join()
    assert sorted(map(bool, said)) == [False, True]
    assert read_files(left.place) == {"model": "new"} and left.aside() == [{"model": "old"}]


def test_the_host_that_had_the_writer_of_the_newest_committed_run_is_reported(
    hosts: NewCluster,
) -> None:
    cluster = hosts("n1", "n2")
    sleeps = ["sleep", "1000"]
    asked = {"job": cluster.job, "keep": ["out/logs"], "gpus": "none"}

    def wrote() -> list[bool | None]:
        calls = [Call(host.context, asked) for host in cluster.hosts.values()]
        return [probe.probe_host(call)["wrote_last"] for call in calls]

    assert wrote() == [None, None]
    cluster.launch("r1", {"worker:0": ("n1", sleeps), "worker:1": ("n2", sleeps)})
    cluster.each("run.stop", "r1")
    cluster.wait_ended("r1")
    cluster.prepare("r2", {"worker:0": ("n2", sleeps), "worker:1": ("n1", sleeps)})
    cluster.each("run.start", "r2")
    cluster.each("run.abort", "r2", reason="rolled back")
    assert wrote() == [True, False]
