"""Test that this version reads each small file that version 0.1.0 wrote on a host, with all its
values.

`files_of_0_1_0/running` was recorded on real hosts. It has all files of n3 during a mirrored run,
after all tasks had restarted and while one task stood still; some files belong to no run.
`files_of_0_1_0/stopped` has the files of the same run after `stop`. If a file lacks a field, the
field's default is used. A file of another shape counts as damaged.
"""

from __future__ import annotations

import json
import shutil
import typing
from pathlib import Path
from typing import Any

import pytest

from tfdeploy.agent import shapes, wire
from tfdeploy.agent.mesh import shared_state
from tfdeploy.agent.minder.store import StateStore
from tfdeploy.agent.run import check_files, file_origin, find, shown_plan
from tfdeploy.agent.run.folder import NO_REASON, RunPaths
from tfdeploy.agent.serve import lock as serve_lock
from tfdeploy.agent.serve.datasets import versions as data_versions
from tfdeploy.agent.serve.env import environments
from tfdeploy.agent.serve.release import store as release_store

FILES = Path(__file__).with_name("files_of_0_1_0")
SINCE = {"delay_s": 0.084, "count": 1, "quick": 1}
KILLED = "worker:1 on n3 killed by signal 9"


@pytest.fixture
def workdir(tmp_path: Path) -> str:
    shutil.copytree(FILES / "running", tmp_path / "running")
    return str(tmp_path / "running")


@pytest.fixture
def paths(workdir: str) -> RunPaths:
    paths_found = find.find_run_paths(workdir, "house", "house-1", "n3")
    assert paths_found is not None and check_files.find_damage(paths_found) is None
    return paths_found


@pytest.fixture
def stopped() -> RunPaths:
    paths_found = find.find_run_paths(str(FILES / "stopped"), "house", "house-1", "n3")
    assert paths_found is not None
    return paths_found


def damage(paths: RunPaths, file: str, **fields: Any) -> None:
    """Set these fields in one file of the run. The value None removes a field."""
    path = Path(paths.file(file))
    said = {**json.loads(path.read_text()), **fields}
    path.write_text(json.dumps({name: value for name, value in said.items() if value is not None}))


def test_part_and_status(paths: RunPaths) -> None:
    part, status = paths.part(), paths.status("worker:1")
    assert (part.run, part.mode, part.host, part.keep, part.links) == (
        "house-1",
        "mirrored",
        "n3",
        ["checkpoints"],
        {"numbers": "numbers"},
    )
    assert [(peer.task, peer.on_death, peer.gang) for peer in part.peers] == [
        ("worker:0", "gang", True),
        ("worker:1", "gang", True),
    ]
    assert (part.restart_max, part.restart_backoff_s, part.stall_after_s, part.supply_from) == (
        3,
        [0.1, 1.0],
        3.0,
        "n2",
    )
    assert paths.has_readable_part() and paths.plan_digest() == part.plan_digest
    assert (status.state, status.attempt, status.round, status.pid, status.supervisor_pid) == (
        "running",
        2,
        2,
        96,
        94,
    )


def test_state(paths: RunPaths, stopped: RunPaths) -> None:
    state = paths.state()
    assert (state.phase, state.hostname, state.place, state.supplied) == (
        "committed",
        "n3",
        "9534e39d0cace374",
        2,
    )
    assert (state.health["worker:1"]["word"], state.health["worker:1"]["attempt"]) == ("stalled", 2)
    assert state.restarts == {
        "worker:1": {"attempt": 1, "round": 1, "how": "killed by signal 9", **SINCE}
    }
    assert state.round == {
        "n": 2,
        "time": 1795381431.8132055,
        "task": "worker:1",
        "reason": KILLED,
        **SINCE,
    }
    assert (
        state.ended_tasks["worker:1"]["signal"],
        shared_state.is_final(state.ended_tasks["worker:1"]),
    ) == (9, False)
    assert (stopped.state().phase, stopped.state().stop_requested) == ("ended", True)


def test_what_minders_know(paths: RunPaths, stopped: RunPaths) -> None:
    store = StateStore(paths, paths.part())
    store.load()
    assert store.known.committed and paths.is_commit_recorded()
    assert (store.known.round_number, store.known.stands) == (2, {"n3": (2, 3), "n2": (2, 3)})
    assert shared_state.next_attempt(store.known, "worker:0") == 2
    store = StateStore(stopped, stopped.part())
    store.load()
    assert store.known.abort is not None
    assert (
        store.known.abort["kind"],
        store.known.abort["host"],
        store.known.abort.get("grace_s"),
    ) == ("stop", "n2", 20.0)


def test_words_and_orders(paths: RunPaths, stopped: RunPaths) -> None:
    assert {
        name: paths.minder_order(name) is not None
        for name in ("start", "commit", "stop", "abort", "renew")
    } == {
        **dict.fromkeys(("start", "commit"), True),
        # These requests were never made. The files `stop` and `abort` exist only to reserve space
        # on the disk.
        **dict.fromkeys(("stop", "abort", "renew"), False),
    }
    assert stopped.minder_order("stop") == {"time": 1795381440.583979, "grace_s": 20.0}
    assert paths.stop_order("worker:1") is None
    assert stopped.stop_order("worker:1") == {
        "reason": "stopped by an operator",
        "grace_s": 20.0,
        "outcome": "stopped",
    }


def test_the_plan(paths: RunPaths) -> None:
    plan = shown_plan.read_plan(paths.workdir, "house", "house-1")
    assert plan == {"operator": "ann@desk", "created": 1795381416.1932528, "data": ["numbers"]}
    assert shown_plan.planned_python(paths.workdir, "house", "house-1", "n3") == "/usr/bin/python3"
    assert shown_plan.planned_python(paths.workdir, "house", "house-1", "n9") is None


def test_what_lies_beside_runs(workdir: str) -> None:
    lock = workdir + "/house/locks/n3-9534e39d0cace374.lock"
    holder = serve_lock.parse_holder(json.loads(Path(lock).read_text()))
    assert (
        holder["user"],
        holder["machine"],
        holder["pid"],
        holder["operation"],
        holder["of_host"],
    ) == (
        *("ann", "desk", 18377, "launch"),
        "n3",
    )
    assert (
        serve_lock.read_fencing_number(lock) == 1795381420768
        and serve_lock.read_last_holder(lock)["operation"] == "launch"
    )
    data = data_versions.read_record(workdir + "/house/data/numbers")
    assert (
        data is not None
        and data["digest"].startswith("f6bb8b2a13ee4c9a")
        and data_versions.is_made_by_tfdeploy(workdir + "/house/data/numbers")
    )
    environment = environments.read_record(workdir + "/.envs/fb0a3ff4fef3b5e3")
    assert environment is not None
    assert (environment["by"], environment["python"], environment["packages"]) == (
        "pip",
        "3.11.7",
        {"packaging": "26.3"},
    )
    release = release_store.load_manifest(
        workdir + "/house/releases/5d01472b2a5a43e9a04311a9a29bd61c.json"
    )
    assert (
        release is not None
        and release.release == "5d01472b2a5a43e9a04311a9a29bd61c"
        and release.entries
    )
    assert (
        file_origin.read_origin(workdir + "/.indoubt/house@house-2@n3")["place"]
        == "9534e39d0cace374"
    )


# --- files with missing or wrong fields


@pytest.mark.parametrize(
    ("file", "fields", "said"),
    [
        (
            "state.json",
            {"health": {"worker:1": {"word": "stalled"}}},
            "state.json: health is wrong",
        ),
        ("state.json", {"restarts": {"worker:1": {"attempt": 1}}}, "state.json: restarts is wrong"),
        # This file is from an older version of tfdeploy, which did not write the fields `how` and
        # `round`.
        ("state.json", {"restarts": {"worker:1": {**SINCE, "attempt": 1}}}, None),
        (
            "state.json",
            {"round": {**SINCE, "n": "2", "time": 1.0, "task": "worker:1"}},
            "state.json: round is wrong",
        ),
        # This file is from an older version of tfdeploy, which did not restart tasks.
        ("state.json", {"ended_tasks": {"worker:1": {"outcome": "killed", "time": 1.0}}}, None),
        (
            "state.json",
            {"ended_tasks": {"worker:1": {"outcome": "killed"}}},
            "state.json: ended_tasks is wrong",
        ),
        (
            "state.json",
            {"first_death": {"outcome": "killed", "time": 1.0}},
            "state.json: first_death is wrong",
        ),
        ("state.json", {"place": None, "supplied": None, "health": None, "unminded": None}, None),
        (
            "part.json",
            {"stall_after_s": None, "supply_from": None, "texts": None, "ahead_s": None},
            None,
        ),
        ("part.json", {"plan_digest": 7}, "part.json: plan_digest is wrong"),
    ],
)
def test_a_run_is_damaged_or_has_defaults(
    paths: RunPaths, file: str, fields: dict[str, Any], said: str | None
) -> None:
    damage(paths, file, **fields)
    assert check_files.find_damage(paths) == said


def test_a_minder_forgets_what_has_another_shape(paths: RunPaths) -> None:
    damage(paths, "state.json", restarts={"worker:1": {"attempt": 1}})
    store = StateStore(paths, paths.part())
    store.load()
    assert (store.state.restarts, store.state.round, store.state.phase) == ({}, None, "committed")
    assert (
        store.known.round_number == 2
        and "state.json: restarts is wrong" in Path(paths.file("journal")).read_text()
    )


@pytest.mark.parametrize(
    ("said", "order"),
    [
        ('{"grace_s": 2}', {"reason": NO_REASON, "grace_s": 2.0, "outcome": "stopped"}),
        ('{"reason": "why"}', None),
        ('{"grace_s": "2"}', None),
        ("[]", None),
    ],
)
def test_an_order_to_stop(paths: RunPaths, said: str, order: object) -> None:
    Path(paths.stop_file("worker:1")).write_text(said)
    assert paths.stop_order("worker:1") == order


def test_certificates_are_whole_or_none(paths: RunPaths) -> None:
    assert paths.certificates() is None
    Path(paths.file("mesh.json")).write_text('{"ca": "A", "cert": "B", "key": "C"}')
    assert paths.certificates() == {"ca": "A", "cert": "B", "key": "C"}
    Path(paths.file("mesh.json")).write_text('{"ca": "A"}')
    with pytest.raises(ValueError, match=r"mesh\.json is damaged"):
        paths.certificates()


def test_a_manifest_of_another_shape_is_none(tmp_path: Path) -> None:
    path = tmp_path / "r1.json"
    for entries, whole in (
        ([["a", "file", 1, "ab", ""]], True),
        ([["a", "file", "1", "ab", ""]], False),
        ([["a"]], False),
        (7, False),
    ):
        path.write_text(json.dumps({"v": 1, "entries": entries}))
        assert (release_store.load_manifest(str(path)) is not None) == whole


# --- check_files.py has the right shape for every file


@pytest.mark.parametrize("name", sorted(check_files.SHAPES))
def test_the_check_of_a_shape_is_that_shape(name: str) -> None:
    shape = getattr(shapes, name)
    kinds = {key: kind.__name__ for key, kind in typing.get_type_hints(shape).items()}
    needed, optional = check_files.SHAPES[name]
    assert {key: check_files.KEY_TYPES[key] for key in needed + optional} == kinds
    assert set(needed) == shape.__required_keys__


def test_every_shape_in_a_record_is_checked() -> None:
    for record in (
        wire.HostPart,
        wire.HostRunState,
        wire.TaskStatus,
        wire.TaskSpec,
        wire.Peer,
        wire.MeshHost,
    ):
        for kind in record.__annotations__.values():
            inner = (
                kind.replace("Optional[", "")
                .replace("List[", "")
                .replace("Dict[str, ", "")
                .rstrip("]")
            )
            known = inner in check_files.SHAPES or inner in (
                "str",
                "int",
                "float",
                "bool",
                "PlanWord",
            )
            assert known or inner in ("TaskSpec", "Peer", "MeshHost"), kind
