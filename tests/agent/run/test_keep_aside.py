"""Test `launch --fresh`: the `keep` folders of the job are set aside under other names. If the
launch is rolled back, they get their old names again, whichever process dies.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from support.agent.cluster import Cluster, NewCluster, wait_until
from tfdeploy.agent import layout, wire
from tfdeploy.agent.call import Call, SessionContext
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.host.flock import FileLock
from tfdeploy.agent.host.private_folder import make_private_folder
from tfdeploy.agent.run import keep_aside, uncommitted
from tfdeploy.agent.run.folder import RunPaths
from tfdeploy.agent.serve.run import ending as run_ending
from tfdeploy.agent.serve.server import find_verb

SAVES = ["sh", "-c", "echo new > ck/checkpoint; exec sleep 1000"]
KEEP = ["ck", "deep/logs"]
OLD = {"ck/checkpoint": "old", "deep/logs/a": "old"}


def kept(workdir: str | Path) -> dict[str, str]:
    """Return {path in the `keep` folder: content}. A file or folder that is moved during the call
    is left out. (Path.rglob raises an error then.)
    """
    root = Path(workdir, "digits", "keep")
    texts: dict[str, str] = {}
    for folder, _, names in os.walk(root):
        for path in (Path(folder, name) for name in names):
            with suppress(FileNotFoundError):
                texts[str(path.relative_to(root))] = path.read_text().strip()
    return texts


def fill(workdir: str | Path, files: dict[str, str]) -> None:
    for path, text in files.items():
        whole = Path(workdir, "digits", "keep", path)
        whole.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        whole.write_text(text)


def aside(run: str = "r1", end: str = "before") -> dict[str, str]:
    return {f"ck.{end}-{run}/checkpoint": "old", f"deep/logs.{end}-{run}/a": "old"}


def prepared(hosts: NewCluster, program: list[str]) -> Cluster:
    cluster = filled(hosts)
    cluster.prepare("r1", {"worker:0": ("n1", program)}, keep=KEEP, fresh=True)
    assert kept(cluster.hosts["n1"].context.workdir) == aside()
    return cluster


def filled(hosts: NewCluster) -> Cluster:
    cluster = hosts("n1")
    fill(cluster.hosts["n1"].context.workdir, OLD)
    return cluster


def test_a_committed_run_begins_with_empty_folders_and_the_old_ones_stay(hosts: NewCluster) -> None:
    cluster = prepared(hosts, SAVES)
    workdir = cluster.hosts["n1"].context.workdir
    cluster.each("run.start", "r1")
    wait_until(lambda: "ck/checkpoint" in kept(workdir))
    cluster.each("run.commit", "r1")
    cluster.each("run.stop", "r1", grace_s=0.0)
    assert kept(workdir) == {**aside(), "ck/checkpoint": "new"}
    cluster.prepare("r2", {"worker:0": ("n1", SAVES)}, keep=KEEP, fresh=True)
    assert kept(workdir) == {**aside(), "ck.before-r2/checkpoint": "new"}


@pytest.mark.parametrize("purge", [True, False])
def test_a_rollback_puts_them_back_and_keeps_what_was_saved_meanwhile(
    hosts: NewCluster, purge: bool
) -> None:
    cluster = prepared(hosts, SAVES)
    workdir = cluster.hosts["n1"].context.workdir
    if not purge:
        cluster.each("run.start", "r1")
        wait_until(lambda: "ck/checkpoint" in kept(workdir))
    cluster.each("run.abort", "r1", purge=purge, plan_digest="d1")
    assert kept(workdir) == {**OLD, **({} if purge else {"ck.undone-r1/checkpoint": "new"})}


def test_so_does_a_rollback_after_this_hosts_commit(hosts: NewCluster) -> None:
    cluster = prepared(hosts, ["sleep", "1000"])
    cluster.each("run.start", "r1")
    cluster.each("run.commit", "r1")
    cluster.each("run.abort", "r1", plan_digest="d1")
    assert kept(cluster.hosts["n1"].context.workdir) == OLD


@pytest.mark.parametrize("started", [False, True])
def test_a_launch_that_is_killed_is_undone_by_the_host_itself(
    hosts: NewCluster, started: bool
) -> None:
    cluster = filled(hosts)
    workdir = cluster.hosts["n1"].context.workdir
    limits = {"start_within_s": 60.0 if started else 0.5, "commit_within_s": 0.5}
    cluster.prepare("r1", {"worker:0": ("n1", SAVES)}, keep=KEEP, fresh=True, **limits)
    assert not started or kept(workdir) == aside()
    if started:
        cluster.each("run.start", "r1")
    wait_until(lambda: OLD.items() <= kept(workdir).items())
    assert not any("before" in path for path in kept(workdir))


def test_a_prepare_that_fails_puts_them_back(hosts: NewCluster) -> None:
    cluster = hosts("n1")
    workdir = cluster.hosts["n1"].context.workdir
    fill(workdir, OLD)
    with pytest.raises(VerbError):
        cluster.prepare("r1", {"worker:0": ("n1", ["no-such-program"])}, keep=KEEP, fresh=True)
    assert kept(workdir) == OLD


@pytest.mark.parametrize("renames", [0, 1, 2, 3])
def test_a_serve_that_is_killed_meanwhile_is_made_good_by_the_next_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, renames: int
) -> None:
    fill(tmp_path, OLD)
    paths = begun(tmp_path, "n1")
    # The first rename puts aside.json in place, and the later renames set the folders aside.
    rename, left = os.rename, [renames]

    def dying(*words: Any) -> None:
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        rename(*words)

    with monkeypatch.context() as patched:
        patched.setattr(keep_aside.os, "rename", dying)
        if renames < 3:
            with pytest.raises(KeyboardInterrupt):
                keep_aside.rename_keep_aside(paths, KEEP)
        else:
            keep_aside.rename_keep_aside(paths, KEEP)
    run_ending.undo_unfinished_launches(str(tmp_path), "n1")
    assert kept(tmp_path) == OLD and not os.path.exists(paths.run_dir)


def test_until_the_commit_a_probe_sees_the_old_ones(hosts: NewCluster) -> None:
    cluster = prepared(hosts, ["sleep", "1000"])
    context = cluster.hosts["n1"].context
    assert [fact["path"] for fact in probed(context)] == KEEP
    cluster.each("run.start", "r1")
    cluster.each("run.commit", "r1")
    assert probed(context) == []


def test_hosts_that_share_a_workdir_do_it_once_and_the_last_one_undoes_it(tmp_path: Path) -> None:
    fill(tmp_path, {"ck/checkpoint": "old"})
    first, second = begun(tmp_path, "n1"), begun(tmp_path, "n2")
    keep_aside.rename_keep_aside(first, KEEP)
    fill(tmp_path, {"ck/seed": "of the release"})
    keep_aside.rename_keep_aside(second, KEEP)
    set_aside = {"ck.before-r1/checkpoint": "old", "ck/seed": "of the release"}
    assert kept(tmp_path) == set_aside
    write_part(second)
    lock = FileLock(second.minder_lock)
    assert lock.acquire()
    keep_aside.restore_keep_if_aborted(first)
    assert kept(tmp_path) == set_aside
    lock.release()
    keep_aside.restore_keep_if_aborted(second)
    back = {"ck/checkpoint": "old", "ck.undone-r1/seed": "of the release"}
    assert kept(tmp_path) == back
    keep_aside.restore_keep_if_aborted(first)
    assert kept(tmp_path) == back


def test_the_last_host_undoes_it_also_if_only_another_one_was_told_of_the_rollback(
    tmp_path: Path,
) -> None:
    fill(tmp_path, OLD)
    first, last = begun(tmp_path, "n1"), begun(tmp_path, "n2")
    for paths in (first, last):
        keep_aside.rename_keep_aside(paths, KEEP)
        paths.write_minder_order("commit", time=1.0)
        state = paths.state()
        state.phase = "committed"
        paths.write_state(state)
    keep_aside.restore_keep_if_aborted(last)
    assert kept(tmp_path) == aside()
    first.write_minder_order("abort")
    keep_aside.restore_keep_if_aborted(last)
    assert kept(tmp_path) == OLD


def test_a_host_without_a_part_of_the_run_sets_its_own_aside(tmp_path: Path) -> None:
    fill(tmp_path, OLD)
    set_aside_without_task(tmp_path, "r1")
    assert kept(tmp_path) == aside()
    set_aside_without_task(tmp_path, "r1")
    fill(tmp_path, {"ck/checkpoint": "new"})
    write_part(begun(tmp_path, "n2", run="r2"))
    # n2 shares this workdir and has a task of run r2, so only n2 may set the folders aside.
    set_aside_without_task(tmp_path, "r2")
    assert kept(tmp_path) == {**aside(), "ck/checkpoint": "new"}


def begun(workdir: Path, host: str, run: str = "r1") -> RunPaths:
    paths = RunPaths(layout.host_dir(str(workdir), "digits", run, host))
    uncommitted.mark_uncommitted(paths)
    make_private_folder(paths.host_dir)
    return paths


def write_part(paths: RunPaths) -> None:
    paths.write_part(
        wire.HostPart(
            run=paths.run, job="digits", mode="async", host=paths.host, plan_digest="d", release="r"
        )
    )


def set_aside_without_task(workdir: Path, run: str) -> None:
    context = SessionContext(str(workdir), "")
    find_verb("lock")(
        Call(
            context,
            {
                "job": "digits",
                "operation": "launch",
                "holder": {"user": "me", "machine": "m"},
                "wait_s": 0,
            },
        )
    )
    find_verb("keep.aside")(Call(context, {"job": "digits", "run": run, "keep": KEEP}))
    find_verb("unlock")(Call(context, {"job": "digits"}))


def probed(context: SessionContext) -> list[dict[str, Any]]:
    probed_facts: list[dict[str, Any]] = find_verb("probe")(
        Call(context, {"job": "digits", "keep": KEEP, "python": "python3", "gpus": "none"})
    )["keep"]
    return probed_facts
