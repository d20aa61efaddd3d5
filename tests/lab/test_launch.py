"""Test `launch` at the command line: its output, its wait for locks, the environment that tasks get
(proxies, secrets), and that it never starts a second set of processes.
"""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
from collections.abc import Callable, Iterator

import pytest

from support.lab.commandline import Tfdeploy
from support.lab.host_commands import host_command
from support.lab.jobs import open_gate, write_job
from support.lab.remains import assert_nothing_left
from support.pseudo_terminal import ALT_OFF, ALT_ON, Terminal, plain, restored
from support.waiting import wait_for
from tfdeploy.lab import Lab

pytestmark = pytest.mark.isolated
TASK_KEYS = """task host state health outcome exit_code signal pid address gpus attempt restarts
step loss metrics metrics_unread started ended reason"""
SECRET = "hunter2-is-not-a-good-one"


OF_A_SUBFOLDER = """import os, helper
lr = open("../settings/lr.txt").read().strip()
print("read", lr, helper.__file__.endswith("src/helper.py"), flush=True)
open("results/step", "a").write("1\\n")
open("scratch", "w").write(os.getcwd())
"""


@pytest.fixture
def operator(isolated_lab: Lab, tfdeploy: Callable[[Lab], Tfdeploy]) -> Tfdeploy:
    return tfdeploy(isolated_lab)


def on(operator: Tfdeploy, host: str, script: str, *, root: bool = False) -> str:
    command = host_command(operator.lab, host, ["sh", "-c", script], root=root)
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


def test_a_launch_on_a_terminal_is_its_dashboard_until_q(operator: Tfdeploy) -> None:
    write_job(operator, "seen", "quick.py", "--gate=5", "--steps=9")
    terminal = Terminal(
        operator.argv("launch", "--name", "seen-1"),
        operator.env,
        cwd=operator.cwd,
        columns=120,
        rows=30,
    )
    try:
        terminal.until("4/4 running", within_s=60)
        before = plain(terminal.output[: terminal.output.find(ALT_ON)]).decode()
        # Before the dashboard appears, the first steps and the name of the run are printed as text.
        assert "plan" in before and "seen-1" in before
        terminal.type(b"\r")
        terminal.until("1 attempt")
        terminal.type(b"\x1b")
        terminal.until("events")
        terminal.type(b"x")
        terminal.until("stop seen-1 on all its hosts?")
        terminal.type(b"n")
        terminal.type(b"q")
        assert terminal.finish() == 0 and restored(terminal)
    finally:
        terminal.close()
    assert {task["state"] for task in operator.json("status", "seen-1")["tasks"]} == {"running"}
    operator.run("stop", "seen-1", "--now", exit_code=0)


def launch_unready(operator: Tfdeploy, name: str) -> Terminal:
    """Begin a launch that waits for ps:0 until `open_gate` is called. Return its terminal."""
    write_job(operator, name, "quick.py", "--gate=2", "--unready=ps:0", ready={"after": "60s"})
    words = operator.argv("launch", "--name", f"{name}-1")
    return Terminal(words, operator.env, cwd=operator.cwd, columns=120)


def test_q_before_tasks_are_up_ends_with_next_commands(operator: Tfdeploy) -> None:
    terminal = launch_unready(operator, "early")
    try:
        terminal.until("q leave", within_s=60)
        terminal.type(b"q")
        terminal.until("the launch goes on; Ctrl-C undoes it")
        open_gate(operator, "early-1", "early", "n1")
        assert terminal.finish() == 0 and restored(terminal)
    finally:
        terminal.close()
        operator.run("stop", "early-1", "--now", exit_code=0)
    after = plain(terminal.output[terminal.output.rfind(ALT_OFF) :]).decode()
    for verb in ("status --watch", "logs -f", "stop"):
        assert f"next: `tfdeploy {verb} early-1`" in after


def test_x_before_tasks_are_up_stops_the_run_after_the_launch(operator: Tfdeploy) -> None:
    terminal = launch_unready(operator, "eager")
    try:
        terminal.until("x stop", within_s=60)
        terminal.type(b"x")
        terminal.until("stop eager-1 on all its hosts?")
        terminal.type(b"y")
        terminal.until("yes, after the launch")
        open_gate(operator, "eager-1", "eager", "n1")
        terminal.until("Enter goes back", within_s=60)
        terminal.type(b"\r")
        assert terminal.finish(within_s=60) == 1 and restored(terminal)
    finally:
        terminal.close()
    assert operator.state("eager-1") == "stopped"


def test_a_program_that_stands_in_a_subfolder_starts_there(operator: Tfdeploy) -> None:
    write_job(
        operator,
        "below",
        "quick.py",
        mode="local",
        cwd="src",
        command=["python", "train.py"],
        keep=["src/results"],
    )
    files = {
        "src/train.py": OF_A_SUBFOLDER,
        "src/helper.py": "",
        "settings/lr.txt": "0.1\n",
        "helper.py": "raise SystemExit(9)",
    }
    for path, text in files.items():
        (operator.cwd / path).parent.mkdir(exist_ok=True)
        (operator.cwd / path).write_text(text)
    assert re.search(
        r"^starts in: +src$", operator.run("launch", "--dry-run", exit_code=0).stdout, re.MULTILINE
    )
    run = operator.run("launch", "--wait", exit_code=0).stdout.strip()
    again = operator.run("launch", "--wait", exit_code=0).stdout.strip()
    lines = operator.run("logs", run, "--output", "raw", exit_code=0).stdout
    status = operator.run("status", again, exit_code=0).stdout
    assert "read 0.1 True" in lines and "src/scratch" in status and "keep: [src" not in status
    operator.run("fetch", again, "--keep", exit_code=0)
    assert [path.read_text() for path in operator.cwd.rglob("keep/src/results/step")] == ["1\n1\n"]


def test_a_launch_answers_as_the_contract_says(operator: Tfdeploy) -> None:
    write_job(operator, "answers", "quick.py", "--steps=5")
    started = operator.json("launch", "--detach", "--name", "answers-1")
    assert (started["run"], started["job"], started["mode"]) == ("answers-1", "answers", "async")
    assert started["state"] in ("running", "succeeded") and started["started"].endswith("Z")
    assert [list(row) for row in started["tasks"]] == [TASK_KEYS.split()] * 4
    operator.wait_until("succeeded", "answers-1")
    done = operator.json("status", "answers-1")
    worker = next(row for row in done["tasks"] if row["task"] == "worker:0")
    assert (worker["outcome"], worker["exit_code"], worker["step"], worker["gpus"]) == (
        "succeeded",
        0,
        5,
        [],
    )
    assert worker["address"].endswith(":2222") and done["ended"].endswith("Z")

    waited = operator.run("launch", "--wait", exit_code=0)
    assert waited.stdout.strip().startswith("answers-20") and "\n" not in waited.stdout.strip()
    assert "step 5" in waited.stderr
    assert_nothing_left(operator, waited.stdout.strip(), "answers")


def test_a_dry_run_sends_nothing(operator: Tfdeploy) -> None:
    write_job(operator, "dry", "quick.py", secrets=["NOT_SET_HERE"])
    plan = operator.json("launch", "--dry-run", "--name", "dry-1")
    assert plan["run"] == "dry-1" and {task["task"] for task in plan["tasks"]} == {
        "ps:0",
        "worker:0",
        "worker:1",
        "worker:2",
    }
    assert all(
        on(operator, host, "ls -d ~/tfdeploy/dry 2>/dev/null || true") == ""
        for host in operator.lab.hosts
    )
    assert operator.json("runs")["runs"] == []


def test_a_worker_that_dies_later_fails_the_run_and_its_launch(operator: Tfdeploy) -> None:
    write_job(
        operator, "later", "crash.py", "--after=2", "--only=worker:2", "--listen", "--signal=11"
    )
    stderr = operator.run("launch", "--wait", "--name", "later-1", exit_code=1).stderr
    assert "worker:2 on n4" in stderr and "signal 11" in stderr and "something is wrong" in stderr
    rows = {row["task"]: row for row in operator.json("status", "later-1")["tasks"]}
    assert (rows["worker:2"]["outcome"], rows["worker:2"]["signal"]) == ("killed", 11)
    assert {rows[task]["outcome"] for task in ("ps:0", "worker:0", "worker:1")} == {"stopped"}
    assert_nothing_left(operator, "later-1", "later")
    (row,) = operator.json("runs", "--state", "failed,lost", "--since", "1h")["runs"]
    assert row["run"] == "later-1" and row["started"] < row["ended"]
    assert "s ago" in operator.run("runs", exit_code=0).stdout
    none = operator.run("runs", "--state", "succeeded", exit_code=0)
    assert none.stdout == "" and "none of 1 runs matches" in none.stderr


# --- a second launch does not start a second set of processes


@pytest.mark.fault("28 the same launch twice, and by another operator")
def test_the_same_launch_twice_is_refused_with_who_when_and_which(
    pair: Lab, tfdeploy: Callable[[Lab], Tfdeploy]
) -> None:
    operator, other = tfdeploy(pair), tfdeploy(pair)
    write_job(operator, "double", "quick.py", "--steps=100000")
    write_job(other, "double", "quick.py", "--steps=100000")
    begun = operator.run("launch", "--detach", "--name", "double-1", exit_code=0)
    for line in (
        "tfdeploy status --watch double-1",
        "tfdeploy logs -f double-1",
        "tfdeploy stop double-1",
    ):
        assert f"next: `{line}`" in begun.stderr and begun.stdout == "double-1\n", begun.stderr
    who = f"@{os.uname().nodename}"
    for again in (operator, other):
        error = again.run("launch", "--detach", exit_code=3).stderr.partition("error:")[2]
        assert "to run both, write a second job file with another `name:`" in error, error
        assert (
            "double-1" in error
            and who in error
            and "since 20" in error
            and "tfdeploy stop double-1" in error
        ), error
        assert again.json("launch", exit_code=3)["error"]["code"] == 3
    assert all(len(operator.marked(host, "double-1")) == 1 for host in pair.hosts)
    other.run("stop", exit_code=0)
    assert_nothing_left(operator, "double-1", "double")


@pytest.mark.fault("28 twenty launches of two operators at once")
def test_of_twenty_launches_at_once_exactly_one_comes_up(
    pair: Lab, tfdeploy: Callable[[Lab], Tfdeploy]
) -> None:
    operator, _ = both = (tfdeploy(pair), tfdeploy(pair))
    for each in both:
        write_job(each, "crowd", "quick.py", "--steps=100000")
    launching = [
        both[number % 2].start("launch", "--detach", "--name", f"crowd-{number}")
        for number in range(20)
    ]
    output = [process.communicate(timeout=180)[0] for process in launching]
    codes = [process.returncode for process in launching]
    assert sorted(codes) == [0] + [3] * 19, "\n\n".join(
        text for text, code in zip(output, codes, strict=True) if code not in (0, 3)
    )
    winner = f"crowd-{codes.index(0)}"
    for text, code in zip(output, codes, strict=True):
        error = text.partition("error:")[2]
        assert (
            code == 0
            or ("locked by the launch of" in error and "(pid " in error)
            or winner in error
        ), text
    for host in pair.hosts:
        assert [len(operator.marked(host, f"crowd-{number}")) for number in range(20)] == [
            int(f"crowd-{number}" == winner) for number in range(20)
        ]
    operator.run("stop", winner, exit_code=0)
    for number in range(20):
        assert_nothing_left(operator, f"crowd-{number}", "crowd")


@pytest.fixture
def held_rsync(operator: Tfdeploy) -> Iterator[Callable[[], None]]:
    """Make the rsync of n2 wait. The test calls the yielded function to let rsync continue."""
    script = (
        "#!/bin/sh\ntouch /tmp/waits\nwhile [ -e /tmp/held ]; do sleep 0.05; done\nexec "
        '/usr/bin/rsync "$@"\n'
    )
    place = "/usr/local/bin/rsync"
    on(
        operator,
        "n2",
        f"touch /tmp/held; printf %s '{script}' > {place}; chmod 755 {place}",
        root=True,
    )

    def let_go() -> None:
        on(operator, "n2", "rm -f /tmp/held", root=True)

    yield let_go
    on(operator, "n2", f"rm -f /tmp/held /tmp/waits {place}", root=True)


@pytest.mark.fault("25 a launch beside a sync")
def test_a_launch_waits_for_a_sync_and_says_for_whose(
    operator: Tfdeploy, held_rsync: Callable[[], None]
) -> None:
    write_job(operator, "waits", "quick.py", "--steps=1")
    with (operator.cwd / "tfdeploy.yaml").open("a") as job:
        job.write("data: {d: {path: ../d, via: rsync}}\n")
    (operator.home / "d").write_text("data")
    syncing = operator.start("sync")
    wait_for(
        lambda: on(operator, "n2", "ls /tmp/waits 2>/dev/null || true"), 20, "the sync is under way"
    )
    launching = operator.start("launch", "--wait", "--name", "waits-1")
    assert launching.stdout is not None
    for line in launching.stdout:
        if "waiting for the sync of" in line:
            break
    assert f"(pid {tfdeploy_pid(operator)})" in line and syncing.poll() is None, line
    held_rsync()
    assert syncing.wait(timeout=120) == 0
    rest = launching.stdout.read()
    assert launching.wait(timeout=120) == 0, rest
    assert_nothing_left(operator, "waits-1", "waits")


def test_a_stop_during_the_sync_of_a_launch_names_the_launch(
    operator: Tfdeploy, held_rsync: Callable[[], None]
) -> None:
    write_job(operator, "hasty", "quick.py", "--steps=1")
    on(operator, "n2", "rm -f /tmp/held", root=True)
    operator.run("launch", "--wait", "--name", "hasty-1", exit_code=0)
    on(operator, "n2", "touch /tmp/held; rm -f /tmp/waits", root=True)
    (operator.cwd / "new.py").write_text("")
    launching = operator.start("launch", "--wait", "--name", "hasty-2")
    wait_for(
        lambda: on(operator, "n2", "ls /tmp/waits 2>/dev/null || true"), 20, "the launch is syncing"
    )
    said = operator.run("stop", exit_code=3).stderr
    assert re.search(r"the launch of \S+ \(pid \d+\) since .* has not yet started its run", said)
    operator.run("stop", "hasty-1", exit_code=0)
    held_rsync()
    assert launching.wait(timeout=120) == 0
    operator.run("stop", exit_code=0)
    assert_nothing_left(operator, "hasty-2", "hasty")


def tfdeploy_pid(operator: Tfdeploy) -> int:
    """Return the pid of the sync that is still sending files to n2. The lock of the job on n2 has
    this pid."""
    return int(json.loads(on(operator, "n2", "cat ~/tfdeploy/waits/locks/*.lock"))["pid"])


# --- the environment of a task


@pytest.mark.fault("33 a dead proxy in a host's environment")
def test_a_proxy_on_a_host_is_gone_around_and_said(operator: Tfdeploy) -> None:
    write_job(operator, "proxied", "vocal.py")
    on(
        operator,
        "n2",
        "echo 'export http_proxy=http://127.0.0.1:9 HTTPS_PROXY=http://127.0.0.1:9' > ~/.bashrc",
    )
    try:
        stderr = operator.run("launch", "--wait", "--name", "proxied-1", exit_code=0).stderr
    finally:
        on(operator, "n2", "rm ~/.bashrc")
    assert "n2 sets" in stderr and "http_proxy" in stderr and "HTTPS_PROXY" in stderr, stderr
    environ = printed(operator, "proxied-1", "worker:0")["environ"]
    addresses = {
        row["address"].rpartition(":")[0] for row in operator.json("status", "proxied-1")["tasks"]
    }
    assert environ["http_proxy"]
    for name in ("no_proxy", "NO_PROXY", "no_grpc_proxy"):
        assert addresses <= set(environ[name].split(",")), name


def printed(operator: Tfdeploy, run: str, task: str) -> dict[str, dict[str, str]]:
    stdout = operator.run("logs", run, "--task", task, "--output", "raw", exit_code=0).stdout
    answer: dict[str, dict[str, str]] = json.loads(
        next(line for line in stdout.splitlines() if line.startswith("{"))
    )
    return answer


PRINTS = """import os, sys, time
text = os.environ["TOKEN"]
print("all of it: " + text, flush=True)
for part in (text[:5], text[5:11], text[11:] + " in three\\n"):
    sys.stderr.write(part); sys.stderr.flush(); time.sleep(0.2)
assert len(text) == 25
"""


@pytest.mark.fault("55 a secret, wherever it could show")
def test_a_secret_is_seen_by_the_program_and_by_nobody_else(operator: Tfdeploy) -> None:
    write_job(operator, "secret", "quick.py", "--steps=1", secrets=["TOKEN"], flags="none")
    program = operator.cwd / "quick.py"
    program.write_text(PRINTS + "time.sleep(1000)\n")
    events = operator.home / "events"
    operator.env["TOKEN"] = SECRET
    outputs = [
        operator.run(
            "launch",
            "--detach",
            "--json",
            "--name",
            "secret-1",
            "--events",
            str(events),
            exit_code=0,
        )
    ]
    wait_for(lambda: "in three" in operator.run("logs", "secret-1").stdout, 10, "it has printed")
    on_host = "~/tfdeploy/secret/runs/secret-1/hosts/n2"
    assert on(operator, "n2", f"stat -c %a {on_host}/env.json").strip() == "600" and SECRET in on(
        operator, "n2", f"cat {on_host}/env.json"
    )
    places = on(
        operator, "n2", f"grep -rlF {SECRET[:12]}'{SECRET[12:]}' ~/tfdeploy || true"
    ).split()
    assert [path.rpartition("/")[2] for path in places] == ["env.json"]
    assert SECRET not in on(operator, "n2", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '", root=True)
    outputs += [
        operator.run(*args, "secret-1")
        for args in (("logs",), ("logs", "--json"), ("status", "--json"))
    ]
    assert "all of it: ***" in outputs[1].stdout and "*** in three" in outputs[1].stdout
    operator.run("stop", "secret-1", exit_code=0)
    assert_nothing_left(operator, "secret-1", "secret")
    assert on(operator, "n2", f"grep -rlF '{SECRET}' ~/tfdeploy || true") == ""

    program.write_text('import os\nraise SystemExit("no good: " + os.environ["TOKEN"])\n')
    # On a busy machine, a dying task lives longer than 300 ms.
    job = operator.cwd / "tfdeploy.yaml"
    job.write_text(job.read_text().replace("300ms", "60s"))
    outputs.append(operator.run("launch", "--name", "secret-2", "-v", exit_code=1))
    assert "no good: ***" in outputs[-1].stderr.partition("error:")[2]
    outputs.append(
        operator.run("launch", "--", "python", "quick.py", f"--token={SECRET}", exit_code=2)
    )
    assert "TOKEN" in outputs[-1].stderr
    assert not any(SECRET in done.stdout + done.stderr for done in outputs)
    for path in operator.home.rglob("*"):
        if path.is_file():
            assert SECRET.encode() not in path.read_bytes(), path
    assert stat.S_IMODE((operator.home / "state/tfdeploy/runs/secret-1").stat().st_mode) == 0o700


@pytest.mark.fault("55 a secret that is not set")
def test_a_secret_that_is_not_set_is_named_before_anything_happens(operator: Tfdeploy) -> None:
    write_job(operator, "unset", "quick.py", secrets=["TOKEN", "OTHER"])
    stderr = operator.run("launch", exit_code=2).stderr
    assert "TOKEN, OTHER" in stderr and "export TOKEN" in stderr
