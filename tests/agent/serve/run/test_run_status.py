"""Test what a host reports about its runs, even if some or all processes of a run are dead."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from support.agent.client import make_run
from support.agent.cluster import NewClient
from tfdeploy.agent import frames, layout, wire
from tfdeploy.agent.call import Call, SessionContext
from tfdeploy.agent.record import replace
from tfdeploy.agent.run import check_files, file_origin, find
from tfdeploy.agent.serve.run import status as run_status
from tfdeploy.model.answers.runs import RUNS
from tfdeploy.text.typed import convert_untrusted


def test_what_the_dead_could_not_write_is_worked_out(serve: NewClient, tmp_path: Path) -> None:
    make_run(tmp_path, "a-ended", "ended", state="ended", outcome="failed", exit_code=3)
    make_run(tmp_path, "b-rebooted", "committed", boot="an earlier one", state="running", pid=1)
    make_run(tmp_path, "c-orphan", "committed", state="running", pid=1)
    pending = make_run(tmp_path, "d-prepared", "prepared")
    live = make_run(tmp_path, "e-live", "committed", state="running", pid=1)
    (tmp_path / "job" / "runs" / "not-a-run").mkdir()
    with (
        (live / "supervisor.lock").open("w") as one,
        (pending.parent.parent / "minder.lock").open("w") as two,
    ):
        fcntl.flock(one, fcntl.LOCK_EX)
        fcntl.flock(two, fcntl.LOCK_EX)
        rows = {row["run"]: row for row in serve().call("runs", job="job")["value"]}
    states = {
        run: (row["live"], row["tasks"][0]["state"], row["tasks"][0]["reason"])
        for run, row in rows.items()
    }
    assert states == {
        "a-ended": (False, "ended", None),
        "b-rebooted": (False, "lost", "host rebooted"),
        "c-orphan": (
            False,
            "lost",
            "no process manages the task: its minder and its supervisor died",
        ),
        "d-prepared": (True, "pending", None),
        "e-live": (True, "running", None),
    }
    assert rows["b-rebooted"]["tasks"][0]["outcome"] == "lost"


ROUND = {"n": 3, "reason": "worker:1 on n2 killed by signal 9"}
ALONE, TOGETHER = (
    "started again: exit code 3",
    "all tasks that restart together were started again: worker:1 on n2 killed by signal 9",
)


def died(attempt: int, of_round: int) -> dict[str, Any]:
    return {"attempt": attempt, "round": of_round, "how": "exit code 3"}


@pytest.mark.parametrize(
    ("gang", "attempt", "of_round", "died", "why"),
    [
        (True, 1, 1, {}, None),
        (False, 2, 1, died(1, 1), ALONE),
        (False, 3, 1, died(1, 1), None),  # only an older attempt has a recorded death
        (True, 3, 3, died(1, 1), TOGETHER),
        # A round is a start of all tasks that restart together (the gang). Round 3 began because of
        # this death.
        (True, 3, 3, died(2, 2), TOGETHER),
        # round 2 is not the newest round, and the host knows only the cause of the newest round
        (True, 4, 3, died(3, 3), ALONE),
        (False, 3, 3, died(2, 2), ALONE),  # the task does not belong to the gang
        (True, 2, 2, {}, None),  # round 2 is not the newest round, so its cause is no longer known
    ],
)
def test_why_there_is_another_attempt(
    tmp_path: Path, gang: bool, attempt: int, of_round: int, died: dict[str, Any], why: str | None
) -> None:
    task = make_run(tmp_path, "run", "committed", state="running", attempt=attempt, round=of_round)
    paths = find.find_run_paths(str(tmp_path), "job", "run")
    assert paths is not None
    state = replace(paths.state(), restarts={"worker:0": died}, round=ROUND)
    (Path(paths.host_dir) / "state.json").write_text(json.dumps(wire.to_wire(state)))
    part = replace(
        paths.part(),
        peers=[
            wire.Peer(
                task="worker:0",
                role="worker",
                host="n1",
                deciding=True,
                serves=False,
                on_death="gang",
                gang=gang,
            )
        ],
    )
    (Path(paths.host_dir) / "part.json").write_text(json.dumps(wire.to_wire(part)))
    with (task / "supervisor.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert run_status.task_status(paths, "worker:0").began_again == why


@pytest.mark.parametrize(
    ("outcome", "reason", "began_again"),
    [
        ("stopped", "the run has failed", ALONE),
        ("succeeded", None, ALONE),
        ("failed", None, None),  # the reason is that of the last death
    ],
)
def test_a_task_that_did_not_die_last_has_the_error_of_its_attempt_before(
    tmp_path: Path, outcome: str, reason: str | None, began_again: str | None
) -> None:
    make_run(
        tmp_path,
        "run",
        "ended",
        state="ended",
        outcome=outcome,
        attempt=2,
        round=1,
        reason=reason,
    )
    paths = find.find_run_paths(str(tmp_path), "job", "run")
    assert paths is not None
    state = replace(paths.state(), restarts={"worker:0": died(1, 1)})
    (Path(paths.host_dir) / "state.json").write_text(json.dumps(wire.to_wire(state)))
    status = run_status.task_status(paths, "worker:0")
    assert (status.reason, status.began_again) == (reason, began_again)


def test_a_task_that_ends_while_it_is_looked_at_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = make_run(tmp_path, "run", "committed", state="running")
    ended = wire.to_wire(
        wire.TaskStatus(run="run", task="worker:0", host="n1", state="ended", outcome="succeeded")
    )

    def ends_now(path: str) -> bool:
        (task / "status.json").write_text(json.dumps(ended))
        return False

    monkeypatch.setattr(run_status, "is_locked", ends_now)
    paths = find.find_run_paths(str(tmp_path), "job", "run")
    assert paths is not None and run_status.task_status(paths, "worker:0").outcome == "succeeded"


def test_a_task_that_starts_again_while_it_is_looked_at_did_not_die_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = make_run(tmp_path, "run", "committed", state="ended", outcome="killed", attempt=1)
    paths = find.find_run_paths(str(tmp_path), "job", "run")
    assert paths is not None
    file = Path(paths.host_dir) / "state.json"
    state = paths.state()
    file.write_text(json.dumps(wire.to_wire(replace(state, again={"worker:0": "starts again"}))))
    looks: list[str] = []

    def then(read: Callable[..., Any]) -> Callable[..., Any]:
        def status_of_new_attempt(*words: Any) -> Any:
            # Between the verb's two reads, the task begins a new attempt, and the minder (the
            # process that looks after the run) records this attempt.
            if looks:
                begun = wire.TaskStatus(
                    run="run", task="worker:0", host="n1", attempt=2, state="starting"
                )
                (task / "status.json").write_text(json.dumps(wire.to_wire(begun)))
                file.write_text(json.dumps(wire.to_wire(state)))
            looks.append("look")
            return read(*words)

        return status_of_new_attempt

    for name in ("status", "state"):
        monkeypatch.setattr(type(paths), name, then(getattr(type(paths), name)))
    with (task / "supervisor.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert run_status.task_status(paths, "worker:0").state == "starting"


def test_runs_of_all_jobs_newest_first_and_their_plans(serve: NewClient, tmp_path: Path) -> None:
    for age, run in ((30, "old"), (10, "new"), (20, "middle")):
        make_run(tmp_path, run, "ended")
        path = Path(layout.host_dir(str(tmp_path), "job", run, "n1")) / "part.json"
        os.utime(path, (1000 - age, 1000 - age))
    (tmp_path / "job" / "runs" / "new" / "plan.json").write_text('{"run": "new"}')
    client = serve()
    assert [row["run"] for row in client.call("runs")["value"]] == ["new", "middle", "old"]
    assert client.call("runs", job="other")["value"] == []
    header, blob = client.frame(client.ask("run.plan", job="job", run="new"))
    assert header["item"] == {} and frames.decompress(blob) == b'{"run": "new"}'
    known = client.ask(
        "run.plan", job="job", run="new", unless=sha256(b'{"run": "new"}').hexdigest()
    )
    assert client.frame(known)[0]["value"] == {}
    assert client.call("run.plan", job="job", run="old")["error"]["code"] == "unknown_run"


def test_an_answer_about_very_many_past_runs_stays_small(tmp_path: Path) -> None:
    """Each of these runs has 1,000 tasks. An answer with all facts of 185 such runs would exceed
    the size limit of an answer. So the answer has fewer facts about older runs.
    """
    ended = {
        f"worker:{number}": {"outcome": "succeeded", "time": 1.0, "host": "n1", "attempt": 1}
        for number in range(1000)
    }
    for number in range(60):
        folder = make_run(
            tmp_path, f"r-{number:02}", "ended", state="ended", outcome="succeeded", exit_code=0
        ).parent.parent
        state = json.loads((folder / "state.json").read_text())
        (folder / "state.json").write_text(json.dumps({**state, "ended_tasks": ended}))
        part = json.loads((folder / "part.json").read_text())
        peers = [
            {"task": task, "role": "worker", "host": "n2", "deciding": task == "worker:999"}
            for task in ended
        ]
        (folder / "part.json").write_text(json.dumps({**part, "peers": peers}))
        os.utime(folder / "part.json", (number, number))
    rows = run_status.list_runs(Call(SessionContext(str(tmp_path), ""), {"job": "job"}))
    assert [row["run"] for row in rows] == [f"r-{number:02}" for number in reversed(range(60))]
    assert [len(row["host_state"]["ended_tasks"]) for row in rows] == [1000] * 20 + [1] * 40
    assert rows[-1]["host_state"]["ended_tasks"] == {"worker:999": ended["worker:999"]}
    assert all(row["tasks"][0]["outcome"] == "succeeded" for row in rows)
    assert len(convert_untrusted(rows, RUNS.value)) == 60


def test_hosts_that_share_a_workdir_know_their_own_part(tmp_path: Path) -> None:
    for host, name, boot in (
        ("n1", "elsewhere", "b1"),
        ("n2", os.uname().nodename, "b2"),
        ("n3", None, "b3"),
    ):
        folder = Path(layout.host_dir(str(tmp_path), "job", "run", host))
        folder.mkdir(parents=True)
        part = wire.HostPart(
            run="run", job="job", mode="async", host=host, plan_digest="digest", release="r1"
        )
        (folder / "part.json").write_text(json.dumps(wire.to_wire(part)))
        state = wire.HostRunState(run="run", job="job", host=host, boot_id=boot, hostname=name)
        (folder / "state.json").write_text(json.dumps(wire.to_wire(state)))
    assert _own_host(tmp_path) == "n2"
    assert _own_host(tmp_path, run="none") is None


def _own_host(workdir: Path, inventory_name: str = "", run: str = "run") -> str | None:
    paths = find.find_run_paths(str(workdir), "job", run, inventory_name)
    return None if paths is None else paths.host


def _state(workdir: Path, host: str, **said: Any) -> None:
    folder = Path(layout.host_dir(str(workdir), "job", "run", host))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "part.json").write_text(
        json.dumps(
            wire.to_wire(
                wire.HostPart(
                    run="run",
                    job="job",
                    mode="async",
                    host=host,
                    plan_digest="digest",
                    release="r1",
                )
            )
        )
    )
    (folder / "state.json").write_text(
        json.dumps(wire.to_wire(wire.HostRunState(run="run", job="job", host=host, **said)))
    )


def test_clones_that_share_a_workdir_know_their_own_part(tmp_path: Path) -> None:
    """Two clones with the same hostname and machine id share a workdir. Before a reboot, each clone
    finds its own files of a run by the boot id. After a reboot, the clone finds them by its name in
    the inventory.
    """
    own_file_origin = file_origin.own_file_origin()
    _state(tmp_path, "n1", **{**own_file_origin, "boot_id": "b1", "place": "p1"})
    _state(tmp_path, "n2", **own_file_origin)
    assert _own_host(tmp_path) == "n2"
    # A clone finds its own files by the boot id, even if the session calls it by the name of the
    # other clone.
    assert _own_host(tmp_path, "n1") == "n2"
    _state(tmp_path, "n2", **{**own_file_origin, "boot_id": "b2", "place": "p2"})
    assert _own_host(tmp_path, "n2") == "n2"
    assert _own_host(tmp_path, "n1") == "n1"
    _state(tmp_path, "n1", **{**own_file_origin, "place": "another container"})
    assert _own_host(tmp_path, "as others call it") == "n2"
    _state(tmp_path, "n1", **own_file_origin)
    _state(tmp_path, "n2", **own_file_origin)  # one machine has two names in the inventory
    assert _own_host(tmp_path, "n2") == "n2"


def test_of_many_hosts_that_share_a_workdir_only_the_own_part_is_looked_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, looked = check_files.find_damage, []
    for number in range(50):
        _state(
            tmp_path, f"n{number}", boot_id=f"b{number}", hostname=f"h{number}", place=f"p{number}"
        )
    _state(tmp_path, "n7", **file_origin.own_file_origin())
    monkeypatch.setattr(
        check_files, "find_damage", lambda paths: (looked.append(paths.host), whole(paths))[1]
    )
    for inventory_name in ("n7", "", "as others call it", "n9"):
        assert _own_host(tmp_path, inventory_name) == "n7"
    assert looked == ["n7"] * 4
    assert find.find_damage(str(tmp_path), "job", "run") is None and len(looked) == 5
    _garbage(Path(layout.host_dir(str(tmp_path), "job", "run", "n0")))
    (Path(layout.host_dir(str(tmp_path), "job", "run", "n1")) / "state.json").unlink()
    (Path(layout.host_dir(str(tmp_path), "job", "run", "n1")) / "state.json").symlink_to(
        "state.json"
    )
    assert _own_host(tmp_path) == "n7"
    assert find.find_damage(str(tmp_path), "job", "run") is None


def test_of_two_parts_of_this_machine_the_one_that_is_whole_counts(tmp_path: Path) -> None:
    own_file_origin = file_origin.own_file_origin()
    _state(tmp_path, "n1", **own_file_origin)
    _wrong_types(Path(layout.host_dir(str(tmp_path), "job", "run", "n1")))
    _state(tmp_path, "n2", **{**own_file_origin, "boot_id": "b1", "place": "p1"})
    assert _own_host(tmp_path) == "n2"
    _wrong_types(Path(layout.host_dir(str(tmp_path), "job", "run", "n2")))
    assert _own_host(tmp_path) is None
    assert "state.json: ended_tasks is wrong" in str(find.find_damage(str(tmp_path), "job", "run"))


def _garbage(folder: Path) -> None:
    (folder / "state.json").write_bytes(b"\x00" * 4096)


def _wrong_types(folder: Path) -> None:
    state = json.loads((folder / "state.json").read_text())
    (folder / "state.json").write_text(json.dumps({**state, "ended_tasks": ["worker:0"]}))


def _wrong_within(folder: Path) -> None:
    state = json.loads((folder / "state.json").read_text())
    (folder / "state.json").write_text(
        json.dumps({**state, "ended_tasks": {"worker:0": {"outcome": "failed", "attempt": "1"}}})
    )


def _deeper_than_is_written(folder: Path) -> None:
    state = json.loads((folder / "state.json").read_text())
    (folder / "state.json").write_text(
        json.dumps({**state, "restarts": {"worker:0": {"count": {"failed": 1}}}})
    )


def _unknown_word(folder: Path) -> None:
    state = json.loads((folder / "state.json").read_text())
    (folder / "state.json").write_text(json.dumps({**state, "phase": "resting"}))


def _no_number(folder: Path) -> None:
    (folder / "tasks/worker-0/status.json").write_text(
        '{"run": "bad", "task": "worker:0", "host": "n1", "started": NaN}'
    )


def _folder_for_file(folder: Path) -> None:
    (folder / "part.json").unlink()
    (folder / "part.json").mkdir()


def _deep(folder: Path) -> None:
    (folder / "state.json").write_text('{"health":' * 100_000)


def _copied(folder: Path) -> None:
    part = json.loads((folder / "part.json").read_text())
    (folder / "part.json").write_text(json.dumps({**part, "run": "another"}))


def _file_for_run(folder: Path) -> None:
    run = folder.parent.parent
    shutil.rmtree(run)
    run.write_text("notes")


SPOILED = [
    _garbage,
    _wrong_types,
    _wrong_within,
    _deeper_than_is_written,
    _unknown_word,
    _no_number,
    _folder_for_file,
    _deep,
    _copied,
    _file_for_run,
]


@pytest.mark.parametrize("spoil", SPOILED, ids=lambda spoil: spoil.__name__[1:])
def test_a_damaged_run_is_named_and_spoils_no_look_at_the_others(
    serve: NewClient, tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    make_run(tmp_path, "good", "ended", state="ended", outcome="succeeded", exit_code=0)
    spoil(make_run(tmp_path, "bad", "committed", state="running", pid=1).parent.parent)
    client = serve()
    rows = {row["run"]: row for row in client.call("runs")["value"]}
    assert (rows["good"]["host_state"]["phase"], "damaged" in rows["good"]) == ("ended", False)
    assert str(tmp_path / "job/runs/bad") in rows["bad"]["damaged"] and not rows["bad"]["live"]
    facts = client.call("probe", job="job", python="python3", ports=[1, 0], gpus="none")["value"]
    assert any("runs/bad" in problem for problem in facts["problems"])
    assert "damaged" not in client.call("run.status", job="job", run="none")["error"]["what"]
    refusal = client.call("run.status", job="job", run="bad")["error"]
    assert refusal["code"] == "unknown_run" and "damaged" in refusal["what"]
    convert_untrusted(list(rows.values()), RUNS.value)


def test_an_unreadable_folder_beside_the_runs_is_no_run(serve: NewClient, tmp_path: Path) -> None:
    make_run(tmp_path, "good", "ended", state="ended", outcome="succeeded", exit_code=0)
    loop = tmp_path / "job/runs/loop"
    loop.symlink_to(loop)
    (tmp_path / "job/runs/strange name\n").mkdir()
    rows = serve().call("runs")["value"]
    assert [row["run"] for row in rows if "damaged" not in row] == ["good"]
