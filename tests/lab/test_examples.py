"""Test every example as its README starts it, with real TensorFlow on isolated hosts that share
nothing.

Each example must reach the accuracy that its README states. Five examples run only in CI, or if
`TFDEPLOY_TEST_ALL=1` is set. Every test session covers most parts of these five examples by other
tests:

- digits: `make demo` trains it. Continuing a run in another mode is tested only in CI.
- crnn: test_main_job.py tests synchronous and asynchronous runs.
- model_parallel: test_main_job.py tests two parameter servers. Placing variables by hand is tested
  only in CI.
- hello in two tasks: every asynchronous run has a ps and a worker.
- towers: the test "mirrored on one host" runs the other program of the same folder.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from support.lab.commandline import REPOSITORY, Tfdeploy
from support.lab.remains import assert_nothing_left
from support.stopwatch import DEADLINE_S
from support.waiting import every
from tfdeploy.lab import Lab

EXAMPLES = REPOSITORY / "examples"
TWO = ("--ps", "1", "--workers", "2")
ONE = ("--ps", "1", "--workers", "1")

pytestmark = pytest.mark.tensorflow


@dataclass(frozen=True)
class Run:
    """One launch of an example, and the lines of its logs."""

    id: str
    example: str
    # The rows of `status`.
    tasks: dict[str, dict[str, object]]
    # {task: its lines}
    said: dict[str, list[str]]

    def says(self, pattern: str, *tasks: str) -> list[str]:
        """Return the text of the pattern's first group in each matching line of these tasks, or of
        all tasks."""
        lines = [line for task in tasks or self.said for line in self.said.get(task, [])]
        return [match[1] for line in lines if (match := re.match(pattern, line))]

    def places(self) -> dict[str, object]:
        return {task: row["host"] for task, row in self.tasks.items()}

    def outcomes(self) -> dict[str, object]:
        return {task: row["outcome"] for task, row in self.tasks.items()}


@pytest.fixture
def launch(isolated_lab: Lab, tfdeploy: Callable[[Lab], Tfdeploy]) -> Callable[..., Run]:
    """Return launch(example, *args), which copies the folder of the example and runs `tfdeploy
    launch --wait ARGS` in it.

    After the run, nothing of it may remain on the hosts.
    """
    operator = tfdeploy(isolated_lab)

    def call(example: str, *args: str) -> Run:
        folder = operator.home / example
        if not folder.exists():
            shutil.copytree(
                EXAMPLES / example, folder, ignore=shutil.ignore_patterns("__pycache__")
            )
            for maker in folder.glob("make_*.py"):
                subprocess.run(
                    [sys.executable, maker.name],
                    cwd=folder,
                    check=True,
                    capture_output=True,
                    timeout=DEADLINE_S,
                )
        operator.cwd = folder
        run = operator.run("launch", "--wait", *args, exit_code=0).stdout.strip()
        answer = operator.json("status", run)
        assert answer["state"] == "succeeded"
        assert_nothing_left(operator, run, answer["job"])
        return Run(
            run, example, {row["task"]: row for row in answer["tasks"]}, _lines(operator, run)
        )

    return call


def _lines(operator: Tfdeploy, run: str) -> dict[str, list[str]]:
    results: dict[str, list[str]] = {}
    for text in operator.run("logs", run, "--output", "json", exit_code=0).stdout.splitlines():
        row = json.loads(text)
        results.setdefault(row["task"], []).append(row["line"])
    return results


def assert_good(run: Run, task: str) -> None:
    """Check that the task printed at least the accuracy that the README of the example states."""
    stated = re.findall(
        r"(\w+ accuracy): at least ([0-9.]+)", (EXAMPLES / run.example / "README.md").read_text()
    )
    assert stated
    what, least = stated[0]
    reached = run.says(rf"{what}: ([0-9.]+)", task)
    assert reached, run.said
    assert float(reached[-1]) >= float(least)


def assert_fresh(run: Run, task: str) -> None:
    assert run.says(r"starting at (?:step|epoch) (\d+)", task), run.said[task]
    assert not run.says(r"going on from (.*)", task), run.said[task]


def assert_resumed(run: Run, task: str, at_least: int) -> None:
    steps = run.says(r"going on from (?:step|epoch) (\d+)", task)
    assert steps and int(steps[0]) >= at_least, run.said[task]


def test_hello_in_one_process(launch: Callable[..., Run]) -> None:
    run = launch("hello")
    assert run.says(r"(Hello, distributed TensorFlow!)", "worker:0")
    assert run.outcomes() == {"worker:0": "succeeded"}


@every
def test_hello_of_two_tasks(launch: Callable[..., Run]) -> None:
    run = launch(
        "hello", "--mode", "async", "--ps", "1", "--workers", "1", "--", "python", "two_tasks.py"
    )
    assert run.says(r"(Hello from the ps and from worker 0!)", "worker:0")
    assert run.outcomes() == {"worker:0": "succeeded", "ps:0": "stopped"}


@every
def test_digits_then_on_from_their_checkpoint_synchronously(launch: Callable[..., Run]) -> None:
    run = launch("digits", *TWO)
    assert_fresh(run, "worker:0")
    assert_good(run, "worker:0")
    again = launch(
        "digits",
        *TWO,
        "--mode",
        "sync",
        "--",
        "python",
        "train.py",
        "--data={data.digits}",
        "--steps=2200",
    )
    assert_resumed(again, "worker:0", 2000)
    assert_good(again, "worker:0")


@every
def test_crnn_synchronous_then_on_from_its_checkpoint_asynchronous(
    launch: Callable[..., Run],
) -> None:
    first = launch("crnn", *TWO)
    assert_fresh(first, "worker:0")
    assert_good(first, "worker:0")
    again = launch("crnn", *ONE, "--mode", "async", "--", "python", "train.py", "--steps=620")
    assert_resumed(again, "worker:0", 600)
    assert_good(again, "worker:0")


@every
def test_model_parallel_then_on_from_its_checkpoint(launch: Callable[..., Run]) -> None:
    run = launch("model_parallel", "--workers", "1")
    assert_good(run, "worker:0")
    assert run.says(r"first/weights is on (/job:ps/task:0)", "worker:0")
    assert run.says(r"last/weights is on (/job:ps/task:1)", "worker:0")
    assert run.outcomes() == {"worker:0": "succeeded", "ps:0": "stopped", "ps:1": "stopped"}
    again = launch("model_parallel", "--workers", "1", "--", "python", "train.py", "--steps=500")
    assert_resumed(again, "worker:0", 400)
    assert_good(again, "worker:0")


def test_mirrored_keras_resumes_on_every_worker(launch: Callable[..., Run]) -> None:
    """tfdeploy must copy the backup that Keras makes from the chief's host to the other hosts.

    Only the chief writes the backup, but every worker reads it when the run resumes.
    """
    workers = ("worker:0", "worker:1")
    first = launch("mirrored_keras", "--workers", "2")
    assert len(set(first.places().values())) == len(workers)
    for worker in workers:
        assert_fresh(first, worker)
        assert first.says(r"replicas in sync: (\d+)", worker) == ["2"]
        assert_good(first, worker)
    again = launch("mirrored_keras", "--workers", "2", "--", "python", "train.py", "--epochs=7")
    for worker in workers:
        assert_resumed(again, worker, 6)
    assert again.outcomes() == dict.fromkeys(workers, "succeeded")


def test_coordinator_with_servers_of_its_own_then_with_ours(launch: Callable[..., Run]) -> None:
    first = launch("coordinator", *TWO)
    assert_fresh(first, "chief:0")
    assert_good(first, "chief:0")
    servers = {"ps:0": "stopped", "worker:0": "stopped", "worker:1": "stopped"}
    assert first.outcomes() == {"chief:0": "succeeded", **servers}
    again = launch("coordinator", *ONE, "--", "python", "chief.py", "--steps=1750")
    assert_resumed(again, "chief:0", 1500)
    assert_good(again, "chief:0")
    assert again.outcomes() == {"chief:0": "succeeded", "ps:0": "stopped", "worker:0": "stopped"}


def test_ingraph_then_on_from_its_checkpoint(launch: Callable[..., Run]) -> None:
    run = launch("ingraph", "--workers", "2")
    assert_fresh(run, "chief:0")
    assert_good(run, "chief:0")
    devices = run.says(r"devices: (.*)", "chief:0")[0]
    assert "/job:worker/replica:0/task:0/" in devices
    assert "/job:worker/replica:0/task:1/" in devices
    again = launch(
        "ingraph",
        "--workers",
        "1",
        "--",
        "python",
        "train.py",
        "--worker_hosts={worker_hosts}",
        "--steps=500",
    )
    assert_resumed(again, "chief:0", 400)


@every
def test_towers_then_on_from_their_checkpoint(launch: Callable[..., Run]) -> None:
    first = launch("towers")
    assert_fresh(first, "worker:0")
    assert_good(first, "worker:0")
    again = launch("towers", "--", "python", "towers.py", "--steps=700")
    assert_resumed(again, "worker:0", 600)


def test_mirrored_on_one_host_then_on_from_its_checkpoint(launch: Callable[..., Run]) -> None:
    run = launch("towers", "--", "python", "mirrored.py", "--checkpoints=checkpoints/mirrored")
    assert_good(run, "worker:0")
    assert list(run.tasks) == ["worker:0"]
    again = launch(
        "towers", "--", "python", "mirrored.py", "--checkpoints=checkpoints/mirrored", "--steps=700"
    )
    assert_resumed(again, "worker:0", 600)
