"""Test that the local store of runs is only a cache: if one of its files cannot be used, only the
content of this file is lost.

A file may be missing, partly written or not writable.
"""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tfdeploy.cli.run_names import make_run_id
from tfdeploy.model.events import Event
from tfdeploy.model.manifest import Manifest, ManifestEntry
from tfdeploy.model.plan import HostPlan, Plan
from tfdeploy.store.places import state_root
from tfdeploy.store.runs import RunStore


def plan(run: str) -> Plan:
    return Plan(
        run=run,
        job="digits",
        mode="async",
        created=1.0,
        operator="ml@desk",
        release="r",
        command=("python", "train.py"),
        cluster={},
        hosts=(
            HostPlan(
                host="n1",
                address="10.0.0.1",
                mesh_port=2222,
                workdir="/w",
                python="/usr/bin/python3",
            ),
        ),
        tasks=(),
        deciding=(),
        flags_appended=(),
    )


def test_saved_plan_is_read_back_equal(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    assert store.save(plan("digits-1"))
    assert store.plan("digits-1") == plan("digits-1")
    assert store.run_ids() == ["digits-1"]


def test_run_of_job_with_longest_name_is_stored(tmp_path: Path) -> None:
    run = make_run_id("j" * 63, 1.0)
    assert RunStore(tmp_path).save(plan(run))
    assert RunStore(tmp_path).plan(run) == plan(run)


def test_damaged_plan_and_invalid_name_are_absent(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    store.save(plan("digits-1"))
    (tmp_path / "runs" / "digits-1" / "plan.json").write_text('{"run": "dig')
    assert store.plan("digits-1") is None
    assert store.plan("../../etc") is None
    assert list(store.plans()) == []


@pytest.mark.needs("other accounts")
def test_plan_of_other_user_is_absent(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    assert store.save(plan("digits-1")) and store.plan("digits-1")
    os.chown(tmp_path / "runs/digits-1/plan.json", 64001, -1)
    assert store.plan("digits-1") is None


def test_code_folder_of_last_run_is_known(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    assert store.newest_code_folder() is None
    store.save(plan("digits-1"), Manifest(root="/c", release="r", entries=()))
    store.save(plan("digits-2"))
    assert store.newest_code_folder() == store.newest_code_folder(plan("digits-1").job) == "/c"
    assert store.newest_code_folder("other") is None


def test_copied_state_folder_keeps_the_times_of_launches(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    store.save(replace(plan("digits-2"), created=2.5))
    store.save(plan("digits-1"))
    assert store.run_ids() == ["digits-2", "digits-1"]
    assert store.launched_at("digits-2") == 2.5


def test_only_this_user_can_read_stored_files(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        store = RunStore(tmp_path / "state/tfdeploy")
        assert store.save(plan("digits-1"), Manifest(root="/c", release="r", entries=()))
        with closing(store.event_recorder("digits-1")) as record:
            record(Event(kind="note", time=1.0))
    finally:
        os.umask(before)
    assert {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "state").rglob("*")} == {
        **dict.fromkeys(("tfdeploy", "runs", "digits-1"), 0o700),
        **dict.fromkeys(("plan.json", "files.json", "code", "events.jsonl"), 0o600),
    }


def test_unreadable_run_hides_no_other(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    for run in ("digits-1", "digits-2"):
        store.save(plan(run))
    loop = tmp_path / "runs" / "loop"
    loop.symlink_to(loop)
    deep = tmp_path / "runs" / "digits-2" / "plan.json"
    deep.write_text("[" * 1_000_000)
    assert set(store.run_ids()) == {"digits-1", "digits-2"}
    assert [found_plan.run for found_plan in store.plans()] == ["digits-1"]


def test_unwritable_folder_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file where the folder should be")
    store = RunStore(tmp_path)
    assert not store.save(plan("digits-1"))
    with closing(store.event_recorder("digits-1")) as record:
        record(Event(kind="note", time=1.0))
    assert store.run_ids() == []


def test_launch_that_fails_before_it_has_a_plan_leaves_no_record(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    with closing(store.event_recorder("digits-1")) as record:
        record(Event(kind="note", time=1.0))
    assert list((tmp_path / "runs").iterdir()) == []
    with closing(store.event_recorder("digits-1")) as record:
        record(Event(kind="note", time=1.0))
        assert store.save(plan("digits-1"))
    assert len(list(store.events("digits-1"))) == 1


def test_samples_are_not_recorded(tmp_path: Path) -> None:
    assert RunStore(tmp_path).save(plan("digits-1"))
    with closing(RunStore(tmp_path).event_recorder("digits-1")) as record:
        record(Event(kind="sample", time=1.0, data={"host": {"time": 1.0}}))
        record(Event(kind="note", time=1.0, data={"text": "y"}))
    assert len((tmp_path / "runs" / "digits-1" / "events.jsonl").read_text().splitlines()) == 1


def test_damaged_lines_of_recorded_events_are_skipped(tmp_path: Path) -> None:
    store, note = RunStore(tmp_path), Event(kind="note", time=1.0, data={"text": "y"})
    assert store.save(plan("digits-1"))
    for damaged in (b"\0\0\n", b"[1]\n", b'{"kind": "no\n'):
        with closing(store.event_recorder("digits-1")) as record:
            record(note)
        with (tmp_path / "runs" / "digits-1" / "events.jsonl").open("ab") as file:
            file.write(damaged)
    assert list(store.events("digits-1")) == [note] * 3


def test_state_folder() -> None:
    assert state_root({"XDG_STATE_HOME": "/s"}) == Path("/s/tfdeploy")
    assert state_root({"XDG_STATE_HOME": "relative", "HOME": "/home/ml"}) == Path(
        "/home/ml/.local/state/tfdeploy"
    )


def test_hashes_of_code_are_stored_only_for_release_of_run(tmp_path: Path) -> None:
    store, saved_plan = RunStore(tmp_path), plan("digits-1")
    file = ManifestEntry(path="t.py", kind="file", size=3, sha256="a" * 64)
    link = ManifestEntry(path="l", kind="link", target="t.py")
    assert store.save(
        saved_plan, Manifest(root="/c", release=saved_plan.release, entries=(file, link))
    )
    assert store.code_files(saved_plan.run) == {
        "t.py": ("file", "a" * 64, 3),
        "l": ("link", "t.py", 0),
    }
    assert store.save(plan("other-1"), Manifest(root="/c", release="another", entries=(file,)))
    assert store.code_files("other-1") is None
    (tmp_path / "runs" / saved_plan.run / "files.json").write_text("[1]")
    assert store.code_files(saved_plan.run) is None and store.code_files("../x") is None


def test_run_is_removed_completely_but_no_link_or_invalid_name(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    store.save(plan("digits-1"))
    store.save(plan("digits-2"))
    (tmp_path / "runs" / "digits-3").symlink_to(tmp_path / "runs" / "digits-2")
    assert (
        store.disk_usage_bytes("digits-1") > 0
        and store.disk_usage_bytes("digits-9") == store.disk_usage_bytes("../x") == 0
    )
    assert store.remove_run("digits-1") and "digits-1" not in store.run_ids()
    assert not (tmp_path / "runs" / "digits-1").exists()
    assert (
        not store.remove_run("digits-3")
        and not store.remove_run("..")
        and store.plan("digits-2") is not None
    )
    # The call also succeeds if the store no longer has the run.
    assert store.remove_run("digits-1")
