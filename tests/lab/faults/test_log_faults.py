"""Test programs that print endless lines or very many lines, logs that are rotated or removed, and
slow readers of logs.

Nothing blocks, and tfdeploy reports lost lines.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from support.lab.commandline import Tfdeploy, wait_for_end
from support.lab.hosts import on_host
from support.lab.jobs import write_job
from support.lab.remains import assert_nothing_left
from support.lab.run_files import task_folder
from support.pseudo_terminal import ALT_OFF, Terminal
from support.stopwatch import Stopwatch
from support.waiting import wait_for
from tfdeploy.lab import Lab

pytestmark = pytest.mark.isolated
SOON_S = 30.0
MOST_KIB = 200 * 1024
LINES = 40_000
PEAK = """
import resource, subprocess, sys
code = subprocess.call(sys.argv[2:], stdout=subprocess.DEVNULL)
open(sys.argv[1], "w").write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
sys.exit(code)
"""
CPU = """
import resource, subprocess, sys
subprocess.check_call(sys.argv[2:], stdout=subprocess.DEVNULL)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
open(sys.argv[1], "a").write("%f\\n" % (used.ru_utime + used.ru_stime))
"""
DIGITS = """import os, signal, sys
if "--job_name=ps" in sys.argv:
    signal.pause()
os.write(1, b"1" * (1 << 20))
"""
ENDLESS = """import os, signal, sys
if "--job_name=ps" in sys.argv:
    signal.pause()
for _ in range(256):
    os.write(1, b"x" * (1 << 20))
"""


@pytest.fixture
def operator(isolated_lab: Lab, tfdeploy: Callable[[Lab], Tfdeploy]) -> Tfdeploy:
    return tfdeploy(isolated_lab)


def numbers(text: str, task: str) -> list[int]:
    """Return the numbers in the lines that flood.py has printed in that task. `text` is the output
    of `logs --output json`.
    """
    rows = [json.loads(line) for line in text.split("\n")[:-1] if line.startswith("{")]
    matches = [re.match(rf"{task} line (\d+)", row["line"]) for row in rows if row["task"] == task]
    return [int(match[1]) for match in matches if match]


@pytest.mark.long
@pytest.mark.fault("45 a line of 256 MB without an end, in bounded memory")
def test_a_line_without_end_costs_bounded_memory(operator: Tfdeploy) -> None:
    write_job(operator, "endless", "quick.py", flags="classic")
    (operator.cwd / "quick.py").write_text(ENDLESS)
    operator.run("launch", "--wait", "--name", "endless-1", exit_code=0)
    size = on_host(
        operator.lab,
        "n2",
        f"stat -c %s {task_folder('endless-1', 'endless', 'n2', 'worker:0')}/out.log",
    )
    assert int(size) == 256 << 20
    peak = operator.home / "peak"
    command = operator.argv("logs", "endless-1", "--task", "worker:0")
    done = subprocess.run(
        ["/usr/bin/env", "python3", "-c", PEAK, str(peak), *command],
        env=operator.env,
        cwd=operator.cwd,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0 and int(peak.read_text()) < MOST_KIB
    on_host(operator.lab, "n2", "rm -rf ~/tfdeploy/endless")


@pytest.mark.fault("46 all tasks flood at once: what is stored and shown is complete")
def test_a_flood_of_all_tasks_is_stored_and_followed_whole(operator: Tfdeploy) -> None:
    write_job(operator, "flooded", "flood.py", f"--lines={LINES}")
    operator.run("launch", "--detach", "--name", "flooded-1", exit_code=0)
    followed = operator.home / "followed"
    with followed.open("w") as out:
        assert (
            operator.start("logs", "-f", "--output", "json", "flooded-1", stdout=out).wait(
                timeout=120
            )
            == 0
        )
    for task in ("worker:0", "worker:1", "worker:2"):
        assert numbers(followed.read_text(), task) == list(range(1, LINES + 1)), task
    assert operator.state("flooded-1") == "succeeded"
    assert_nothing_left(operator, "flooded-1", "flooded")


def follow(operator: Tfdeploy, run: str, out: Path) -> subprocess.Popen[str]:
    with out.open("w") as file:
        return operator.start(
            "logs", "-f", "--output", "json", run, "--task", "worker:0", stdout=file
        )


def is_counting_on(counted: list[int], last: int) -> bool:
    return counted == sorted(set(counted)) and counted[-1:] == [last]


@pytest.mark.fault("48 a log rotated away under a follower that sleeps")
def test_a_follower_that_slept_over_a_rotation_says_what_is_gone_and_repeats_nothing(
    operator: Tfdeploy,
) -> None:
    write_job(
        operator, "rotated", "flood.py", "--lines=30000", "--rate=6000", logs={"max": "200KiB"}
    )
    operator.run("launch", "--detach", "--name", "rotated-1", exit_code=0)
    out = operator.home / "followed"
    following = follow(operator, "rotated-1", out)
    wait_for(lambda: len(numbers(out.read_text(), "worker:0")) > 100, SOON_S, "lines are followed")
    os.killpg(following.pid, signal.SIGSTOP)
    operator.wait_until("succeeded", "rotated-1")
    os.killpg(following.pid, signal.SIGCONT)
    assert following.wait(timeout=120) == 0
    line_numbers = numbers(out.read_text(), "worker:0")
    assert is_counting_on(line_numbers, 30000) and len(line_numbers) < 30000, (
        len(line_numbers),
        line_numbers[:3],
        line_numbers[-3:],
    )
    assert "removed by rotation" in out.read_text(), "what is gone is said"
    assert_nothing_left(operator, "rotated-1", "rotated")


@pytest.mark.long
@pytest.mark.fault("48 a log removed under writer and follower")
def test_a_log_that_is_removed_goes_on_and_nothing_comes_twice(operator: Tfdeploy) -> None:
    write_job(operator, "removed", "flood.py", "--lines=20000", "--rate=4000")
    operator.run("launch", "--detach", "--name", "removed-1", exit_code=0)
    out = operator.home / "followed"
    following = follow(operator, "removed-1", out)
    wait_for(lambda: len(numbers(out.read_text(), "worker:0")) > 1000, SOON_S, "lines are followed")
    on_host(
        operator.lab,
        "n2",
        f"cd {task_folder('removed-1', 'removed', 'n2', 'worker:0')} && rm out.log out.index",
    )
    assert following.wait(timeout=120) == 0
    line_numbers = numbers(out.read_text(), "worker:0")
    assert is_counting_on(line_numbers, 20000), (
        len(line_numbers),
        line_numbers[:3],
        line_numbers[-3:],
    )
    assert operator.state("removed-1") == "succeeded"
    assert_nothing_left(operator, "removed-1", "removed")


@pytest.mark.fault("47 a reader that reads nothing (Ctrl-S, a slow pipe)")
def test_a_reader_that_stalls_holds_up_neither_run_nor_other_readers(operator: Tfdeploy) -> None:
    write_job(operator, "stalled", "flood.py", "--lines=60000")
    launching = operator.start("launch", "--wait", "--json", "--name", "stalled-1")
    wait_for(
        lambda: any(row["run"] == "stalled-1" for row in operator.json("runs")["runs"]),
        SOON_S,
        "it is launched",
    )
    # The run succeeds although nobody reads the output of the launch.
    operator.wait_until("succeeded", "stalled-1")
    assert_nothing_left(operator, "stalled-1", "stalled")
    following = operator.start("logs", "-f", "stalled-1", "--output", "json", "--task", "worker:0")
    whole = operator.run(
        "logs", "stalled-1", "--output", "json", "--task", "worker:0", exit_code=0
    ).stdout
    rest, _ = following.communicate(timeout=120)
    assert numbers(whole, "worker:0") == numbers(rest, "worker:0") == list(range(1, 60001))
    launching.communicate(timeout=120)
    assert launching.returncode == 0


@pytest.fixture
def two_hosts(pair: Lab, tfdeploy: Callable[[Lab], Tfdeploy]) -> Tfdeploy:
    return tfdeploy(pair)


def cpu_of_status(operator: Tfdeploy, run: str) -> float:
    """Measure the CPU seconds of `status` twice, and return the smaller result."""
    used = operator.home / "cpu"
    used.unlink(missing_ok=True)
    for _ in range(2):
        command = [sys.executable, "-c", CPU, str(used), *operator.argv("status", run)]
        subprocess.run(command, env=operator.env, cwd=operator.cwd, timeout=60, check=True)
    return min(map(float, used.read_text().split()))


def test_lines_that_are_costly_to_match_hold_up_neither_status_nor_the_dashboard_nor_the_sampler(
    two_hosts: Tfdeploy,
) -> None:
    operator = two_hosts
    metrics = {"endless": "(.+)+!"}
    write_job(operator, "quiet", "costly_lines.py", "--floods=0", metrics=metrics)
    operator.run("launch", "--detach", "--name", "quiet-1", exit_code=0)
    usual_s = cpu_of_status(operator, "quiet-1")
    operator.run("stop", "quiet-1", "--now", exit_code=0)
    write_job(operator, "costly", "costly_lines.py", "--rate=250", metrics=metrics)
    operator.run("launch", "--detach", "--name", "costly-1", exit_code=0)
    assert cpu_of_status(operator, "costly-1") < 2 * usual_s
    samples = (
        operator.lab.root
        / f"hosts/n2/home{task_folder('costly-1', 'costly', 'n2', 'worker:0')[1:]}"
        / "samples"
    )

    def count_samples() -> int:
        return samples.read_text().count("\n") if samples.exists() else 0

    taken = count_samples()
    terminal = Terminal(
        operator.argv("status", "costly-1", "--watch"),
        operator.env,
        cwd=operator.cwd,
        columns=120,
        rows=30,
    )
    try:
        terminal.until("no new values of endless")
        terminal.until("us/step us/step")
        began = len(terminal.output)
        watch = Stopwatch()
        terminal.type(b"q")
        while ALT_OFF not in terminal.output[began:]:
            terminal.until("\r", within_s=5)
        assert watch.seconds < 0.3
        assert terminal.finish() == 0
    finally:
        terminal.close()
    wait_for(lambda: count_samples() > taken + 1, 60.0, "samples are taken")
    row = next(
        each for each in operator.json("status", "costly-1")["tasks"] if each["task"] == "worker:0"
    )
    assert row["state"] == "running" and row["metrics_unread"] == ["endless"]
    assert "worker:0: no new values of endless" in operator.run(
        "status", "costly-1", exit_code=0
    ).stdout.replace("\n", " ")
    operator.run("stop", "costly-1", "--now", exit_code=0)


def test_ctrl_c_ends_a_search_in_a_line_of_a_megabyte(two_hosts: Tfdeploy) -> None:
    operator = two_hosts
    write_job(operator, "digits", "quick.py", flags="classic")
    (operator.cwd / "quick.py").write_text(DIGITS)
    operator.run("launch", "--wait", "--name", "digits-1", exit_code=0)
    looking = operator.start("logs", "digits-1", "--grep", r"\d+x")
    with pytest.raises(subprocess.TimeoutExpired):
        looking.wait(2)
    os.killpg(looking.pid, signal.SIGINT)
    assert wait_for_end(looking, 5)[0] in (130, -signal.SIGINT)


@pytest.mark.long
@pytest.mark.fault("47 20 columns, NO_COLOR, no terminal")
def test_narrow_and_colourless(operator: Tfdeploy) -> None:
    write_job(operator, "narrow-view", "talk.py")
    operator.run("launch", "--wait", "--name", "narrow-view-1", exit_code=0)
    for env in ({"COLUMNS": "20"}, {"NO_COLOR": "1"}, {"TERM": "dumb"}):
        for args in (("status",), ("logs",), ("runs",)):
            done = operator.run(*args, env=env, exit_code=0)
            assert "\x1b" not in done.stdout + done.stderr
            assert "worker" in done.stdout or args == ("runs",)
