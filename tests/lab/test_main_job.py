"""Test the most important kind of job, several parameter servers and workers, with real TensorFlow
on isolated hosts that share nothing. The programs do not use tfdeploy.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from support.lab.commandline import Tfdeploy
from support.lab.hosts import on_host
from support.stopwatch import Stopwatch
from tfdeploy.lab import Lab

PROGRAMS = Path(__file__).parent / "programs"
ROLES = {"ps": ["n1", "n2"], "worker": ["n3", "n4"]}
ONE_OF_EACH = ("--ps", "1", "--workers", "1")
# At most this many seconds may pass from the last step of a synchronous run to its chief's end.
PROMPT_S = 15.0

pytestmark = pytest.mark.tensorflow


@pytest.fixture
def operator(isolated_lab: Lab, tfdeploy: Callable[[Lab], Tfdeploy]) -> Tfdeploy:
    """Return an operator whose inventory has two ps hosts and two worker hosts."""
    made = tfdeploy(isolated_lab)
    text = isolated_lab.inventory.read_text()
    inventory = made.home / "inventory.yaml"
    inventory.write_text(text[: text.index("roles:")] + f"roles: {json.dumps(ROLES)}\n")
    made.env["TFDEPLOY_INVENTORY"] = str(inventory)
    return made


def prepare(operator: Tfdeploy, name: str, program: str, *flags: str) -> None:
    shutil.copy(PROGRAMS / program, operator.cwd / program)
    command = json.dumps(["python", program, *flags])
    (operator.cwd / "tfdeploy.yaml").write_text(
        f"name: {name}\nmode: async\nkeep: [checkpoints]\ncommand: {command}\n"
    )


def assert_nothing_left(operator: Tfdeploy, run: str) -> None:
    for host in operator.lab.hosts:
        assert operator.marked(host, run) == []


def lines_of(operator: Tfdeploy, run: str) -> dict[str, list[str]]:
    results: dict[str, list[str]] = {}
    for text in operator.run("logs", run, "--output", "json", exit_code=0).stdout.splitlines():
        row = json.loads(text)
        results.setdefault(row["task"], []).append(row["line"])
    return results


def kept_files(operator: Tfdeploy, host: str) -> set[str]:
    """Return the names of the checkpoint files in the job's `keep` folder on that host."""
    script = "find tfdeploy/*/keep/checkpoints -type f -printf '%f\\n' 2>/dev/null || true"
    return set(on_host(operator.lab, host, script).split())


def test_async_on_four_hosts_ends_well_and_resumes(operator: Tfdeploy) -> None:
    prepare(operator, "monitored", "monitored_async.py", "--steps=400")
    first = operator.run("launch", "--mode", "async", "--wait", exit_code=0).stdout.strip()
    lines_by_task = lines_of(operator, first)
    for worker in ("worker:0", "worker:1"):
        assert any(re.match(r"done at step \d+", line) for line in lines_by_task[worker]), (
            lines_by_task[worker]
        )
    assert any(line.startswith("starting at step") for line in lines_by_task["worker:0"])
    assert_nothing_left(operator, first)
    rows = {row["task"]: row for row in operator.json("status", first)["tasks"]}
    assert rows["ps:0"]["outcome"] == rows["ps:1"]["outcome"] == "stopped"
    assert {rows[task]["host"] for task in ("ps:0", "ps:1")} == {"n1", "n2"}
    # TensorFlow wrote this metric to the event file next to the checkpoints.
    assert rows["worker:0"]["metrics"]["checkpoints/global_step/sec"] > 0, rows
    saved = kept_files(operator, rows["worker:0"]["host"])
    newest = max(
        int(step)
        for name in saved
        if (step := re.sub(r"model\.ckpt-(\d+)\.index", r"\1", name)).isdigit()
    )
    assert newest >= 400 and {"checkpoint", f"model.ckpt-{newest}.data-00000-of-00001"} <= saved, (
        saved
    )
    # A ps saves no files on the disk of its own host.
    assert kept_files(operator, "n1") == kept_files(operator, "n2") == set()

    command = (
        "launch",
        "--mode",
        "async",
        "--wait",
        *ONE_OF_EACH,
        "--",
        "python",
        "monitored_async.py",
        "--steps=700",
    )
    again = operator.run(*command, exit_code=0)
    second = again.stdout.strip()
    started = [
        line
        for line in lines_of(operator, second)["worker:0"]
        if line.startswith("starting at step")
    ]
    assert int(started[0].split()[-1]) >= 400, started
    assert "continues from" in again.stderr
    assert_nothing_left(operator, second)


@pytest.mark.parametrize("program", ["sync_supervisor.py", "sync_monitored.py"])
def test_sync_ends_soon_after_its_last_step(operator: Tfdeploy, program: str) -> None:
    prepare(operator, program[:-3].replace("_", "-"), program, "--steps=100")
    watch = Stopwatch()
    run = operator.run(
        "launch", "--mode", "sync", "--wait", "--ps", "1", exit_code=0
    ).stdout.strip()
    slowdown = watch.slowdown
    rows = {row["task"]: row for row in operator.json("status", run)["tasks"]}
    assert rows["worker:0"]["outcome"] == "succeeded"
    last = [line for line in lines_of(operator, run)["worker:0"] if line.startswith("last step")]
    ended = re.sub(r"Z$", "+00:00", rows["worker:0"]["ended"])
    assert (seconds(ended) - float(last[0].split()[-1])) / slowdown <= PROMPT_S
    assert_nothing_left(operator, run)


def test_a_worker_that_comes_after_the_others_are_done_ends_too(operator: Tfdeploy) -> None:
    prepare(operator, "late", "late_worker.py", "--steps=50", "--delay=15")
    run = operator.run(
        "launch", "--mode", "async", "--wait", "--ps", "1", exit_code=0
    ).stdout.strip()
    assert operator.state(run) == "succeeded"
    assert_nothing_left(operator, run)


def seconds(iso: str) -> float:
    from datetime import datetime

    return datetime.fromisoformat(iso).timestamp()
