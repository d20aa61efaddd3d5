"""Test mode plain. Equal workers, two on each of several hosts, compute a sum over sockets. The
worker of rank 0 listens on the planned port.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.lab.commandline import REPOSITORY, Tfdeploy
from support.lab.jobs import open_gate, write_job
from support.lab.remains import assert_nothing_left
from tfdeploy.lab import Lab

pytestmark = pytest.mark.isolated
JAX = REPOSITORY / "examples" / "jax_distributed"
TRAINED_S = 300.0
TWO_EACH = {"worker": {"per_host": 2}}
RANKS = ("worker:0", "worker:1", "worker:2", "worker:3")


@pytest.fixture
def operator(few_hosts: Lab, tfdeploy: Callable[[Lab], Tfdeploy]) -> Tfdeploy:
    return tfdeploy(few_hosts)


def read_log_lines(operator: Tfdeploy, run: str, task: str) -> list[str]:
    lines = operator.run("logs", run, "--task", task, "--json", exit_code=0).stdout.splitlines()
    return [json.loads(line)["line"] for line in lines]


def rows_of(operator: Tfdeploy, run: str) -> list[dict[str, Any]]:
    answer: list[dict[str, Any]] = operator.json("status", run)["tasks"]
    return answer


def test_ranks_meet_at_the_port_of_the_first_and_end_together(operator: Tfdeploy) -> None:
    command = ["python", "all_reduce.py", "--steps=5"]
    write_job(operator, "sum", "all_reduce.py", mode="plain", roles=TWO_EACH, command=command)
    operator.run("launch", "--wait", "--name", "sum-1", exit_code=0)
    rows = rows_of(operator, "sum-1")
    assert [(row["task"], row["host"], row["outcome"]) for row in rows] == [
        ("worker:0", "n2", "succeeded"),
        ("worker:1", "n2", "succeeded"),
        ("worker:2", "n3", "succeeded"),
        ("worker:3", "n3", "succeeded"),
    ]
    assert [bool(row["address"]) for row in rows] == [True, False, False, False]
    for rank, task in enumerate(RANKS):
        lines = read_log_lines(operator, "sum-1", task)
        assert lines[:2] == [
            f"RANK={rank} WORLD_SIZE=4 LOCAL_RANK={rank % 2} LOCAL_WORLD_SIZE=2",
            "of TensorFlow: []",
        ]
        assert lines[-1] == "step 5 sum 50"
    assert_nothing_left(operator, "sum-1", "sum")


def test_all_start_again_after_the_death_of_one_and_the_port_is_free_once_more(
    operator: Tfdeploy,
) -> None:
    command = ["python", "all_reduce.py", "--steps=30", "--gate=10", "--dies=1"]
    again = {"max": 1, "backoff": ["100ms", "1s"]}
    keys: dict[str, Any] = {
        "roles": TWO_EACH,
        "command": command,
        "restart": again,
        "keep": ["checkpoints"],
    }
    write_job(operator, "sum-again", "all_reduce.py", mode="plain", **keys)
    run = operator.run("launch", "--detach", exit_code=0).stdout.strip()
    open_gate(operator, run, "sum-again", "n2", "n3")
    operator.wait_until("succeeded", run)
    assert [(row["outcome"], row["attempt"]) for row in rows_of(operator, run)] == [
        ("succeeded", 2)
    ] * 4
    assert "rank 3 has come" in read_log_lines(operator, run, "worker:0")
    for task in RANKS:
        starts = [
            line for line in read_log_lines(operator, run, task) if line.startswith("starting at")
        ]
        assert starts[0] == "starting at step 0" and len(starts) == 2
        # Rank 0 may have saved one more step before the restart.
        assert starts[1] in ("starting at step 10", "starting at step 11")
        assert read_log_lines(operator, run, task)[-1] == "step 30 sum 300"
    assert (
        len(
            {
                line
                for task in RANKS
                for line in read_log_lines(operator, run, task)
                if line.startswith("starting at")
            }
        )
        == 2
    )
    assert_nothing_left(operator, run, "sum-again")


def test_a_rank_without_a_restart_left_fails_the_run(operator: Tfdeploy) -> None:
    command = ["python", "all_reduce.py", "--steps=30", "--gate=10", "--dies=2"]
    write_job(operator, "sum-fails", "all_reduce.py", mode="plain", roles=TWO_EACH, command=command)
    run = operator.run("launch", "--detach", exit_code=0).stdout.strip()
    open_gate(operator, run, "sum-fails", "n2", "n3")
    operator.wait_until("failed", run)
    rows = {row["task"]: row for row in rows_of(operator, run)}
    assert (rows["worker:2"]["outcome"], rows["worker:2"]["exit_code"]) == ("failed", 3)
    assert_nothing_left(operator, run, "sum-fails")


@pytest.fixture
def torch_python() -> str:
    """Return the path of an interpreter that has PyTorch: the interpreter of the tests, or the one
    that TFDEPLOY_TEST_TORCH names.
    """
    python = os.environ.get("TFDEPLOY_TEST_TORCH", sys.executable)
    if subprocess.run(
        [python, "-c", "import torch.distributed"], capture_output=True, timeout=120
    ).returncode:
        pytest.skip(f"{python} has no PyTorch; TFDEPLOY_TEST_TORCH names an interpreter that has")
    return python


@pytest.mark.long
def test_torch_trains_over_two_hosts_and_goes_on_from_rank_0_when_a_rank_is_killed(
    operator: Tfdeploy, torch_python: str
) -> None:
    command = [torch_python, "ddp.py", "--epochs=6", "--dies=3"]
    keys: dict[str, Any] = {
        "roles": TWO_EACH,
        "command": command,
        "restart": {"backoff": ["1s", "2s"]},
        "keep": ["checkpoints"],
    }
    write_job(
        operator, "ddp", "ddp.py", mode="plain", ready={"after": "2s", "timeout": "2m"}, **keys
    )
    run = operator.run("launch", "--detach", exit_code=0, timeout_s=TRAINED_S).stdout.strip()
    operator.wait_until("succeeded", run, timeout_s=TRAINED_S)
    assert [(row["outcome"], row["attempt"]) for row in rows_of(operator, run)] == [
        ("succeeded", 2)
    ] * 4
    lines = {task: read_log_lines(operator, run, task) for task in RANKS}
    for rank, task in enumerate(RANKS):
        begun = [
            int(line.rpartition(" ")[2])
            for line in lines[task]
            if line.startswith(f"rank {rank} of 4 begins")
        ]
        assert begun[0] == 0 and len(begun) == 2 and begun[1] in (2, 3), lines[task]
    # All ranks have the same model.
    assert len({lines[task][-1] for task in RANKS}) == 1
    assert_nothing_left(operator, run, "ddp")


@pytest.fixture
def jax_wheels(tmp_path: Path) -> Path:
    """Return the folder with wheels of the example's requirements. The hosts install from this
    folder, because they cannot reach a package index.
    """
    made = tmp_path / "wheels"
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "-q",
        "-d",
        str(made),
        "--only-binary",
        ":all:",
    ]
    done = subprocess.run(
        [*command, "-r", str(JAX / "requirements.txt")], capture_output=True, text=True, timeout=600
    )
    if done.returncode:
        pytest.skip(
            "jax cannot be installed here: "
            f"{(done.stderr.strip().splitlines() or ['pip said nothing'])[-1]}"
        )
    return made


@pytest.mark.long
def test_jax_trains_over_three_hosts_and_goes_on_from_its_checkpoint(
    isolated_lab: Lab, tfdeploy: Callable[[Lab], Tfdeploy], jax_wheels: Path
) -> None:
    operator = tfdeploy(isolated_lab)
    operator.cwd = operator.home / JAX.name
    shutil.copytree(JAX, operator.cwd, ignore=shutil.ignore_patterns("__pycache__"))
    jax_wheels.rename(operator.cwd / "wheels")
    job = operator.cwd / "tfdeploy.yaml"
    job.write_text(
        job.read_text().replace(
            "requirements: requirements.txt", "requirements: requirements.txt, wheels: ./wheels"
        )
    )
    operator.env["TFDEPLOY_LIMIT"] = "n[2-4]"
    operator.run("setup", exit_code=0, timeout_s=900.0)
    first = operator.run("launch", "--wait", exit_code=0, timeout_s=TRAINED_S).stdout.strip()
    assert {row["task"]: row["host"] for row in rows_of(operator, first)} == {
        "worker:0": "n2",
        "worker:1": "n3",
        "worker:2": "n4",
    }
    stated = re.search(r"test accuracy: at least ([0-9.]+)", (JAX / "README.md").read_text())
    assert stated is not None
    for rank in range(3):
        lines = read_log_lines(operator, first, f"worker:{rank}")
        assert f"process {rank} of 3, 3 devices in all" in lines and "starting at step 0" in lines
        assert next(
            float(line.split(": ")[1]) for line in lines if line.startswith("test accuracy")
        ) >= float(stated[1])
    more = ("--", "python", "train.py", "--steps=700")
    again = operator.run("launch", "--wait", *more, exit_code=0, timeout_s=TRAINED_S).stdout.strip()
    assert all(
        "starting at step 600" in read_log_lines(operator, again, f"worker:{rank}")
        for rank in range(3)
    )
    assert_nothing_left(operator, again, "jax-distributed")
