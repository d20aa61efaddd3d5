"""Test, in each mode, how a run ends and what every worker finds when it starts. The program does
not use TensorFlow.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from support.lab.commandline import Tfdeploy, wait_for_end
from support.lab.event_pipe import EventPipe
from support.lab.hosts import on_host
from support.lab.jobs import open_gate, write_job
from support.lab.remains import assert_nothing_left
from tfdeploy.lab import Lab

WAIT = ("launch", "--wait", "--name")


@pytest.fixture
def operator(loopback_lab: Lab, tfdeploy: Callable[[Lab], Tfdeploy]) -> Tfdeploy:
    return tfdeploy(loopback_lab)


def ends(operator: Tfdeploy, run: str) -> dict[str, Any]:
    return {row["task"]: row["outcome"] for row in operator.json("status", run)["tasks"]}


def read_log_lines(operator: Tfdeploy, run: str, task: str) -> list[str]:
    lines = operator.run("logs", run, "--task", task, "--json", exit_code=0).stdout.splitlines()
    return [json.loads(line)["line"] for line in lines]


def launch_until(
    operator: Tfdeploy, pipe: EventPipe, run: str, host: str, kind: str, **data: str
) -> tuple[int, str]:
    """Launch the run. After the event `kind` with the fields `data`, open the gate on the host.
    Return the exit code and the output of the launch.
    """
    launching = operator.start(*WAIT, run, *pipe.words)
    pipe.hold_at(kind, **data)
    pipe.go_on()
    open_gate(operator, run, run.rpartition("-")[0], host)
    return wait_for_end(launching)


def test_mirrored_succeeds_when_every_worker_has(operator: Tfdeploy, pipe: EventPipe) -> None:
    flags = ("--steps=2", "--gate=worker:1")
    write_job(operator, "m-end", "any_mode.py", *flags, mode="mirrored")
    code, output = launch_until(
        operator, pipe, "m-end-1", "n3", "task", task="worker:0", state="ended"
    )
    assert code == 0, output
    answer = operator.json("status", "m-end-1")
    first, second = answer["tasks"]
    assert (answer["state"], first["outcome"], second["outcome"]) == (
        "succeeded",
        "succeeded",
        "succeeded",
    )
    # The "Z" at the end is removed, because a time without milliseconds ("...:00Z") would sort
    # after one with milliseconds ("...:00.5Z").
    ends_at = [str(row["ended"]).rstrip("Z") for row in (answer, second, first)]
    assert ends_at[0] >= ends_at[1] > ends_at[2]
    assert_nothing_left(operator, "m-end-1", "m-end")


def test_mirrored_fails_when_one_worker_does_although_another_was_done(
    operator: Tfdeploy, pipe: EventPipe
) -> None:
    flags = ("--steps=2", "--gate=worker:1", "--fail=worker:1")
    write_job(operator, "m-fail", "any_mode.py", *flags, mode="mirrored")
    code, output = launch_until(
        operator, pipe, "m-fail-1", "n3", "task", task="worker:0", state="ended"
    )
    assert code == 1 and "worker:1 on n3 failed with exit code 3" in output, output
    assert ends(operator, "m-fail-1") == {"worker:0": "succeeded", "worker:1": "failed"}
    assert_nothing_left(operator, "m-fail-1", "m-fail")


def test_before_a_mirrored_run_every_worker_has_the_chiefs_keep_and_no_other(
    operator: Tfdeploy,
) -> None:
    write_job(
        operator,
        "m-keep",
        "any_mode.py",
        "--steps=3",
        "--save",
        mode="mirrored",
        keep=["checkpoints"],
    )
    operator.run(*WAIT, "m-keep-1", exit_code=0)
    assert "found nothing" in read_log_lines(operator, "m-keep-1", "worker:1")
    keep = "~/tfdeploy/m-keep/keep/checkpoints"
    on_host(
        operator.lab,
        "n3",
        f"mkdir -p {keep}/old; echo stale > {keep}/old/checkpoint; touch -d 2001-01-01 "
        f"{keep}/old/checkpoint",
    )

    refused = operator.run(*WAIT, "m-keep-1", exit_code=3)
    assert "run m-keep-1 exists already" in refused.stderr
    # The refused launch has not copied any `keep` folder.
    assert on_host(operator.lab, "n3", f"cat {keep}/old/checkpoint") == "stale"
    again = operator.run(*WAIT, "m-keep-2", exit_code=0)
    assert (
        "`keep` of n2 was copied to n3: 1 file; checkpoints/old/checkpoint was renamed, because "
        "n2 has no such file or an older one" in again.stderr
    )
    assert "training continues from checkpoints: ckpt-3 on n2" in again.stderr
    for task in ("worker:0", "worker:1"):
        assert 'found model_checkpoint_path: "ckpt-3"' in read_log_lines(operator, "m-keep-2", task)
    assert on_host(operator.lab, "n3", f"cd {keep}; find . -type f | sort").split() == [
        "./backup/checkpoint",
        "./old/checkpoint.older",
    ]
    assert on_host(operator.lab, "n3", "ls -A ~/tfdeploy/m-keep/keep").split() == ["checkpoints"]

    on_host(operator.lab, "n3", f"rm {keep}/backup/checkpoint")
    on_host(operator.lab, "n2", f"mkdir -p {keep}/logs; ln -s /etc/passwd {keep}/logs/link")
    third = operator.run(*WAIT, "m-keep-3", exit_code=0)
    assert "was copied to n3: 1 file" in third.stderr

    # Like Keras' BackupAndRestore, the chief deletes its checkpoint at the end. It saves a model.
    on_host(operator.lab, "n2", f"rm -r {keep}/backup; echo model > {keep}/model")
    operator.run("fetch", "m-keep-3", "--keep", exit_code=0)
    fetched = operator.cwd / "fetched" / "m-keep-3" / "keep" / "checkpoints"
    assert [path.name for path in fetched.iterdir() if path.is_file()] == ["model"]
    fourth = operator.run(*WAIT, "m-keep-4", exit_code=0)
    assert "training continues from checkpoints: files of an earlier run on n2" in fourth.stderr
    assert "found nothing" in read_log_lines(operator, "m-keep-4", "worker:1")
    assert on_host(operator.lab, "n2", f"cat {keep}/model") == "model"
    assert_nothing_left(operator, "m-keep-3", "m-keep")


def test_a_coordinators_servers_end_after_its_evaluator_has_had_its_grace(
    operator: Tfdeploy, pipe: EventPipe
) -> None:
    flags = ("--steps=3", "--gate=chief:0", "--forever=evaluator:0", "--quiet_after=8")
    keys: dict[str, Any] = {"mode": "coordinator", "finish": {"grace": "1s"}}
    write_job(operator, "c-end", "any_mode.py", *flags, **keys)
    _with_evaluator(operator)
    code, output = launch_until(operator, pipe, "c-end-1", "n2", "line", task="evaluator:0")
    assert code == 0, output
    tasks = {row["task"]: row for row in operator.json("status", "c-end-1")["tasks"]}
    assert {task: row["outcome"] for task, row in tasks.items()} == {
        "ps:0": "stopped",
        "chief:0": "succeeded",
        "worker:0": "stopped",
        "worker:1": "stopped",
        "evaluator:0": "stopped",
    }
    assert tasks["evaluator:0"]["address"] == "" and tasks["chief:0"]["address"]
    assert "step 8" in read_log_lines(operator, "c-end-1", "evaluator:0")
    ends_at = [tasks[name]["ended"].rstrip("Z") for name in ("worker:1", "evaluator:0", "chief:0")]
    assert ends_at[0] >= ends_at[1] > ends_at[2]
    assert_nothing_left(operator, "c-end-1", "c-end")


def test_an_evaluator_that_ends_by_itself_has_succeeded(operator: Tfdeploy) -> None:
    flags = ("--steps=3", "--steps_of=evaluator:0=12")
    write_job(
        operator, "c-eval", "any_mode.py", *flags, mode="coordinator", finish={"grace": "30s"}
    )
    _with_evaluator(operator)
    operator.run(*WAIT, "c-eval-1", exit_code=0)
    assert ends(operator, "c-eval-1")["evaluator:0"] == "succeeded"


@pytest.mark.fault("33 TF_CONFIG set by caller and login shell")
def test_local_has_no_cluster_whatever_a_login_shell_sets(operator: Tfdeploy) -> None:
    write_job(operator, "l-end", "any_mode.py", "--steps=3", mode="local")
    on_host(operator.lab, "n2", "echo export TF_CONFIG=nonsense > ~/.bashrc")
    try:
        done = operator.run(*WAIT, "l-end-1", exit_code=0, env={"TF_CONFIG": "{}"})
    finally:
        on_host(operator.lab, "n2", "rm ~/.bashrc")
    assert "your environment sets TF_CONFIG: the tasks get the plan's values" in done.stderr
    assert "the login environment of n2 sets TF_CONFIG: the tasks get" in done.stderr
    assert (
        read_log_lines(operator, "l-end-1", "worker:0")[0]
        == "worker:0 listens: False; TF_CONFIG: False"
    )
    (row,) = operator.json("status", "l-end-1")["tasks"]
    assert (row["host"], row["address"], row["outcome"]) == ("n2", "", "succeeded")
    assert_nothing_left(operator, "l-end-1", "l-end")


@pytest.mark.fault("5 a mode that contradicts the roles")
@pytest.mark.parametrize(
    ("args", "what"),
    [
        (("--mode", "mirrored", "--ps", "1"), "mode mirrored has no role ps"),
        (("--mode", "local", "--workers", "2"), "mode local has one worker"),
        (("--mode", "coordinator", "--exclude", "n1"), "needs at least one ps"),
        (("--mode", "ingraph", "--limit", "n1"), "needs at least one worker"),
    ],
)
def test_a_mode_that_contradicts_the_roles_is_refused_before_any_host_is_bothered(
    operator: Tfdeploy, args: tuple[str, ...], what: str
) -> None:
    write_job(operator, "contra", "any_mode.py", mode="async")
    refused = operator.run("launch", *args, exit_code=2)
    assert what in refused.stderr and "probe" not in refused.stderr


def _with_evaluator(operator: Tfdeploy) -> None:
    """Use an inventory with an evaluator on n3."""
    text = operator.lab.inventory.read_text()
    inventory = operator.home / "inventory.yaml"
    inventory.write_text(text.replace("roles:\n", "roles:\n  evaluator: [n3]\n"))
    operator.env["TFDEPLOY_INVENTORY"] = str(inventory)
