"""Test `tfdeploy logs`, which shows the lines of all tasks in one stream, whatever bytes the lines
contain, and which applies filters to them.
"""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta, timezone

import pytest

from support.lab.commandline import Tfdeploy
from support.lab.hosts import on_host
from support.lab.jobs import open_gate, write_job
from support.stopwatch import Stopwatch
from support.waiting import wait_for
from tfdeploy.lab import Lab

LINES = 6
RUN = "talk-1"
LINE = re.compile(r"(ps|worker):\d@n\d +\| (ps|worker):\d says \d$")


@pytest.fixture(scope="module")
def talked(loopback_lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Tfdeploy:
    """Return an operator whose run has ended. Each of the three tasks printed LINES lines."""
    operator = Tfdeploy(loopback_lab, tmp_path_factory.mktemp("talked"))
    write_job(operator, "talk", "talk.py", f"--lines={LINES}", "--pause=0.05")
    operator.run("launch", "--wait", "--name", RUN, exit_code=0)
    return operator


def rows(operator: Tfdeploy, *args: str) -> list[dict[str, object]]:
    done = operator.run("logs", *args, "--output", "json", exit_code=0)
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_all_lines_merged_in_time_and_in_order_for_each_task(talked: Tfdeploy) -> None:
    task_rows = rows(talked)
    assert [row["time"] for row in task_rows] == sorted(str(row["time"]) for row in task_rows)
    for task, host in (("ps:0", "n1"), ("worker:0", "n2"), ("worker:1", "n3")):
        mine = [row for row in task_rows if row["task"] == task]
        assert {row["host"] for row in mine} == {host}
        assert [row["line"] for row in mine if row["stream"] == "out"] == [
            f"{task} says {n}" for n in (1, 2, 4, 5)
        ]
        assert [row["line"] for row in mine if row["stream"] == "err"] == [
            f"{task} says {n}" for n in (3, 6)
        ]
    for row in task_rows:
        assert row.keys() == {"time", "run", "task", "host", "attempt", "stream", "line"}
        assert (row["run"], row["attempt"]) == (RUN, 1)
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", str(row["time"]))
    text = talked.run("logs", exit_code=0).stdout
    assert all(LINE.match(line) for line in text.splitlines()), text
    assert "\x1b" not in text
    assert rows(talked, "--json") == task_rows


def test_only_what_is_asked_for(talked: Tfdeploy) -> None:
    assert [row["line"] for row in rows(talked, "--task", "worker:1", "-n", "2")] == [
        "worker:1 says 5",
        "worker:1 says 6",
    ]
    assert {row["task"] for row in rows(talked, "--task", "worker")} == {"worker:0", "worker:1"}
    assert {row["task"] for row in rows(talked, "--host", "n1", "--host", "n3")} == {
        "ps:0",
        "worker:1",
    }
    assert [row["line"] for row in rows(talked, "--grep", "says [12]$", "--task", "ps:0")] == [
        "ps:0 says 1",
        "ps:0 says 2",
    ]
    assert len(rows(talked, "-n", "1")) == 3
    assert rows(talked, "-n", "0") == []
    assert len(rows(talked, "--since", "1h")) == 3 * LINES
    assert rows(talked, "--since", "0s") == []
    assert [row["line"] for row in rows(talked, RUN[:3], "--task", "ps", "-n", "1")] == [
        f"ps:0 says {LINES}"
    ]


def lines(operator: Tfdeploy, *args: str) -> list[object]:
    return [row["line"] for row in rows(operator, *args)]


# This program fails when the test calls open_gate. So its first attempt fails only after the launch
# is complete.
CRASHING = """import os, sys, time
print("step 1", flush=True)
while not os.path.exists("gate"):
    time.sleep(0.05)
print("ERROR:train:no data", file=sys.stderr, flush=True)
raise ValueError("no data")
"""


def test_errors_are_whole_tracebacks_of_each_attempt(
    loopback_lab: Lab, tfdeploy: Callable[[Lab], Tfdeploy]
) -> None:
    operator = tfdeploy(loopback_lab)
    write_job(
        operator,
        "crashing",
        "talk.py",
        mode="plain",
        command=["python", "crashing.py"],
        restart={"max": 1, "backoff": ["0s", "0s"]},
        roles={"worker": {"count": 1}},
    )
    (operator.cwd / "crashing.py").write_text(CRASHING)
    operator.run("launch", "--detach", "--name", "crashing-1", exit_code=0)
    open_gate(operator, "crashing-1", "crashing", "n2")
    wait_for(lambda: operator.state("crashing-1") == "failed", 60, "the failed run")
    shown = rows(operator, "crashing-1", "--errors")
    assert {row["task"] for row in shown} == {"worker:0"}
    for attempt in (1, 2):
        first, head, *frames, last = [row["line"] for row in shown if row["attempt"] == attempt]
        assert (first, last) == ("ERROR:train:no data", "ValueError: no data")
        assert head == "Traceback (most recent call last):" and len(frames) >= 2
    assert rows(operator, "crashing-1", "--errors", "-f") == shown
    by_text = rows(operator, "crashing-1", "--grep", "raise ValueError", "--attempt", "2")
    assert by_text == [row for row in shown if row["attempt"] == 2][1:]
    assert rows(operator, "crashing-1", "--errors", "--exclude-grep", "no data") == []
    text = operator.run("logs", "crashing-1", "--errors", exit_code=0).stdout
    assert re.search(r"^worker:0@n2 \| -- attempt 2, \d{4}-\d\d-\d\dT", text, re.MULTILINE)


def test_names_are_ranges_and_globs(talked: Tfdeploy) -> None:
    for args, tasks in (
        (("--task", "worker:[0-1]"), {"worker:0", "worker:1"}),
        (("--task", "worker:[1-9,0]", "--host", "n[3-4]"), {"worker:1"}),
        (("--task", "p*,worker:[1]"), {"ps:0", "worker:1"}),
        (("--host", "n?", "--exclude", "n[2-3]"), {"ps:0"}),
        (("--limit", "*[1-2]"), {"ps:0", "worker:0"}),
    ):
        assert {row["task"] for row in rows(talked, "-n1", *args)} == tasks, args


def test_expressions_streams_and_aliases(talked: Tfdeploy) -> None:
    one = ("--task", "worker:0")
    say = "worker:0 says {}".format
    assert lines(talked, *one, "--grep", "1$", "--grep", "5$") == [say(1), say(5)]
    assert lines(talked, *one, "--grep", "SAYS", "--ignore-case", "--exclude-grep", "[2-6]") == [
        say(1)
    ]
    assert lines(talked, *one, "--stderr") == [say(3), say(6)]
    assert lines(talked, *one, "--stderr", "--tail", "1") == [say(6)]
    assert lines(talked, *one, "--grep", "[12]$", "-n", "1") == [say(2)]
    assert lines(talked, *one, "-f", "--grep", "[12]$", "-n", "1") == [say(2)]
    assert sorted(map(str, lines(talked, *one, "--grep", "4$", "-C", "1"))) == [
        say(3),
        say(4),
        say(5),
    ]
    assert lines(talked, "--tail", "all", "--attempt", "1", *one) == lines(talked, *one)
    text = talked.run(
        "logs",
        "-t",
        "-o",
        "text",
        "--no-color",
        "--highlight",
        "says",
        "--tail",
        "1",
        *one,
        exit_code=0,
    ).stdout
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+Z worker:0@n2 \| worker:0 says 6\n", text), text
    shown = talked.run(
        "logs", "--highlight", "says", "--color", "always", "-n1", *one, exit_code=0
    ).stdout
    assert "\x1b[1;31msays\x1b[0m 6" in shown
    text = talked.run(
        "logs", *one, "--grep", "1$|6$", "-C", "1", "--exclude-grep", "[3]", exit_code=0
    ).stdout
    assert [row.split(" | ")[1].removeprefix("worker:0 says ") for row in text.splitlines()] == [
        "1",
        "2",
        "--",
        "5",
        "6",
    ]


def test_until_is_a_time_too(talked: Tfdeploy) -> None:
    task_rows = rows(talked, "--task", "worker:0")
    times = [str(row["time"]) for row in task_rows]
    # The margin of 1 ms is needed because printed times are rounded.
    shown = timedelta(milliseconds=1)
    first, last = (datetime.fromisoformat(times[at].replace("Z", "+00:00")) for at in (1, 3))
    until = (last + shown).astimezone(timezone(timedelta(hours=5))).isoformat()
    since = (first - shown).isoformat().replace("+00:00", "Z")
    assert rows(talked, "--task", "worker:0", "--until", until, "--since", since) == task_rows[1:4]
    assert rows(talked, "--task", "worker:0", "--until", until, "-f") == task_rows[:4]
    ahead = talked.run("logs", "--since", "2999-01-01", exit_code=0)
    assert ahead.stdout == "" and "in the future" in ahead.stderr


def test_until_ends_what_is_followed(talked: Tfdeploy, tfdeploy: Callable[[Lab], Tfdeploy]) -> None:
    operator = tfdeploy(talked.lab)
    write_job(operator, "endless", "talk.py", "--lines=10000", "--pause=0.1")
    operator.run("launch", "--detach", "--name", "endless-1", exit_code=0)
    until, watch = datetime.now(timezone.utc) + timedelta(seconds=3), Stopwatch()
    task_rows = rows(operator, "-f", "endless-1", "--until", until.isoformat())
    took, slowdown = (datetime.now(timezone.utc) - until).total_seconds(), watch.slowdown
    operator.run("stop", "endless-1", "--now", exit_code=0)
    last = max(datetime.fromisoformat(str(row["time"]).replace("Z", "+00:00")) for row in task_rows)
    assert (
        timedelta(0) <= until - last < timedelta(seconds=1.5 * slowdown) and took < 20 * slowdown
    ), (until, last, took)


def test_the_attempt_before_the_newest(
    talked: Tfdeploy, tfdeploy: Callable[[Lab], Tfdeploy]
) -> None:
    operator = tfdeploy(talked.lab)
    write_job(
        operator,
        "again",
        "crash.py",
        "--only=worker:1",
        "--gate",
        restart={"max": 1, "backoff": ["10ms", "10ms"]},
    )
    operator.run("launch", "--detach", "--name", "again-1", exit_code=0)
    open_gate(operator, "again-1", "again", "n3")
    operator.wait_until("failed", "again-1")
    for args, attempt in ((("-p",), 1), (("--attempt", "2"), 2), (("--previous", "-f"), 1)):
        task_rows = rows(operator, "again-1", "--task", "worker:1", *args)
        assert {row["attempt"] for row in task_rows} == {attempt} and task_rows[0][
            "line"
        ] == "worker:1 started", args
    done = operator.run("logs", "again-1", "--task", "worker:0", "--previous", exit_code=2)
    assert "the newest attempt of worker:0 is number 1" in done.stderr
    assert (
        "has had 3 attempts"
        in operator.run("logs", "again-1", "--attempt", "3", exit_code=2).stderr
    )


def test_an_expression_that_takes_for_ever_is_ended_by_ctrl_c(talked: Tfdeploy) -> None:
    endless = "((.|.|.)*)*!"
    for args in (
        ("--grep", endless),
        ("-f", "--grep", endless),
        ("-f", "--highlight", endless, "--color", "always"),
    ):
        looking = talked.start("logs", *args)
        with pytest.raises(subprocess.TimeoutExpired):
            looking.wait(2)
        os.killpg(looking.pid, signal.SIGINT)
        looking.communicate(timeout=120)
        assert looking.returncode == 130, args


def test_raw_bytes_go_to_a_terminal_only_when_that_is_agreed(talked: Tfdeploy) -> None:
    for args, code in (((), 3), (("-y",), 0)):
        ours, theirs = pty.openpty()
        argv = talked.argv("logs", "-oraw", "--task", "ps", *args)
        done = subprocess.run(
            argv,
            env=talked.env,
            cwd=talked.cwd,
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=subprocess.PIPE,
            check=False,
        )
        os.close(theirs)
        assert done.returncode == code, done.stderr
        shown = b""
        # Reading from a terminal whose other end is closed fails with EIO.
        with suppress(OSError):
            while part := os.read(ours, 4096):
                shown += part
        os.close(ours)
        assert (b"ps:0 says 1" in shown) == (code == 0)
        assert code == 0 or b"next: add -y" in done.stderr


AT = """import sys, time
now = float(sys.argv.pop(1))
time.time = lambda: now
from tfdeploy.cli.main import main
sys.exit(main())"""


def test_since_cuts_at_a_time(talked: Tfdeploy) -> None:
    """`--since 0s` shows the lines from the current time on. Here the operator's clock shows a time
    between the third line and the fourth.
    """
    task_rows = rows(talked, "--task", "worker:0")
    before, after = (
        datetime.fromisoformat(str(row["time"]).replace("Z", "+00:00")).timestamp()
        for row in task_rows[2:4]
    )
    command = [
        sys.executable,
        "-c",
        AT,
        str((before + after) / 2),
        "logs",
        "--task",
        "worker:0",
        "--since",
        "0s",
        "--json",
    ]
    argv = talked.lab.operator_command(command)
    done = subprocess.run(
        argv,
        env=talked.env,
        cwd=talked.cwd,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert [json.loads(line) for line in done.stdout.splitlines()] == task_rows[3:]


def test_timestamps_and_raw(talked: Tfdeploy) -> None:
    text = talked.run("logs", "--timestamps", "--task", "ps", exit_code=0).stdout
    assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z ps:0@n1 +\| ps:0 says 1\n", text), text
    raw = talked.run("logs", "--output", "raw", "--task", "ps", exit_code=0).stdout
    assert raw == "".join(f"ps:0 says {number}\n" for number in range(1, LINES + 1))


def test_unknown_runs_tasks_and_expressions_are_usage_errors(talked: Tfdeploy) -> None:
    for args, what in (
        (("nothing-like-it",), "nothing-like-it"),
        (("--task", "worker:7"), "no task"),
        (("--host", "n7"), "matches no host"),
        (("--grep", "("), "not a regular expression"),
        (("-n", "-3"), "-3"),
        (("--task", "worker:[2-1]"), "runs backwards"),
        (("--task", "wrker"), "did you mean worker?"),
        (("--exclude-grep", "["), "not a regular expression"),
        (("-C", "3"), "--grep"),
        (("--since", "1h", "--until", "2h"), "--since is later"),
        (("--since", "yesterday"), "neither a duration nor a time"),
        (("--attempt", "1", "-p"), "cannot be used together"),
        (("--fold", "-o", "raw"), "--fold is for text"),
    ):
        done = talked.run("logs", *args, exit_code=2)
        assert what in done.stderr and "next: " in done.stderr and done.stdout == "", done.stderr


@pytest.mark.fault("47 logs | head")
def test_a_reader_that_goes_away_ends_it_quietly(talked: Tfdeploy) -> None:
    for args in ((), ("-f",), ("--json",)):
        argv = talked.argv("logs", *args)
        with subprocess.Popen(
            argv, env=talked.env, cwd=talked.cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as logs:
            assert logs.stdout is not None and logs.stderr is not None
            assert logs.stdout.readline()
            logs.stdout.close()
            assert logs.stderr.read() == b""
            assert logs.wait(120) == 0


def test_following_ends_with_the_run_and_misses_nothing(
    talked: Tfdeploy, tfdeploy: Callable[[Lab], Tfdeploy]
) -> None:
    operator = tfdeploy(talked.lab)
    write_job(operator, "follow", "talk.py", "--lines=40", "--pause=0.05")
    operator.run("launch", "--detach", "--name", "follow-1", exit_code=0)
    following = operator.start("logs", "-f", "follow-1", "--json")
    output, _ = following.communicate(timeout=120)
    assert following.returncode == 0, output
    collected = [json.loads(line) for line in output.splitlines()]
    for task in ("ps:0", "worker:0", "worker:1"):
        numbers = [int(row["line"].split()[-1]) for row in collected if row["task"] == task]
        assert sorted(numbers) == list(range(1, 41)), task
    assert operator.state("follow-1") == "succeeded"


def test_lines_that_a_host_no_longer_has_come_from_what_was_fetched(
    talked: Tfdeploy, tfdeploy: Callable[[Lab], Tfdeploy]
) -> None:
    operator = tfdeploy(talked.lab)
    write_job(operator, "kept", "talk.py")
    operator.run("launch", "--wait", "--name", "kept-1", exit_code=0)
    before = rows(operator, "kept-1")
    operator.run("fetch", "kept-1", "--logs", exit_code=0)
    on_host(operator.lab, "n2", "rm -rf ~/tfdeploy/kept/runs/kept-1")
    done = operator.run("logs", "kept-1", "--json", exit_code=0)
    assert [json.loads(line) for line in done.stdout.splitlines()] == before and len(before) == 9
    assert (
        done.stderr.startswith("n2: these lines come from fetched/kept-1/logs")
        and done.stderr.count("\n") == 1
    )
    assert lines(operator, "kept-1", "--stderr", "--attempt", "1", "--task", "worker:0") == [
        "worker:0 says 3"
    ]
    (operator.cwd / "fetched").rename(operator.cwd / "elsewhere")
    assert "[n2] no lines from this host: " in operator.run("logs", "kept-1", exit_code=1).stderr


@pytest.mark.long
@pytest.mark.fault("10 logs of a run with a host off")
def test_a_host_that_is_off_is_said_and_the_others_are_shown(
    new_lab: Callable[..., Lab], tfdeploy: Callable[[Lab], Tfdeploy]
) -> None:
    own = new_lab("loopback", 2)
    operator = tfdeploy(own)
    write_job(operator, "off", "talk.py")
    operator.run("launch", "--wait", "--name", "off-1", exit_code=0)
    own.kill("n2")
    done = operator.run("logs", "off-1", exit_code=4)
    assert "ps:0 says 3" in done.stdout and "worker" not in done.stdout
    assert re.search(r"\[n2\] no lines from this host: .*refuses connections", done.stderr), (
        done.stderr
    )


ODD = (
    b"\x1b[31mred\x1b[0m \x1b]52;c;aGFjaw==\x07\x1b]0;title\x1b\\ \x1b[2J\x9b31m after\n"
    b"nul \x00 and \xff\xfe\xc3( end\n"
    b"\xc2\x9b31m c1 \xe2\x80\xae bidi \xe2\x81\xa6 end\n"
    b"[/foo] [bold]not markup[/bold] [link=http://x]y[/link]\n"
    b"10%|#   |\r50%|##  |\r100%|####|\n"
    b"back\x08\x08\x08space\n"
    b"\n" + b"x" * (1 << 20) + b"\n" + b"\xf0\x9f\x98\x80 smile\n" + b"no newline at the end"
)
FORBIDDEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@pytest.mark.fault("45 NUL, no UTF-8, bars, ANSI, OSC, bidi, markup, no newline")
def test_foreign_bytes_are_safe_in_text_and_whole_in_raw(
    talked: Tfdeploy, tfdeploy: Callable[[Lab], Tfdeploy]
) -> None:
    operator = tfdeploy(talked.lab)
    (operator.cwd / "odd.bin").write_bytes(ODD)
    write_job(operator, "odd-lines", "talk.py", "--odd=odd.bin", "--lines=0")
    operator.run("launch", "--wait", "--name", "odd-lines-1", exit_code=0)

    def read_raw_log(*args: str) -> bytes:
        argv = operator.argv("logs", "odd-lines-1", "--task", "worker:0", *args)
        return subprocess.run(
            argv, env=operator.env, cwd=operator.cwd, capture_output=True, timeout=60, check=True
        ).stdout

    assert read_raw_log("--output", "raw") == ODD
    text = read_raw_log("--color", "never").decode("utf-8")
    assert not FORBIDDEN.search(text)
    for args in (
        "red ",
        "nul ",
        "[/foo] [bold]not markup[/bold] [link=http://x]y[/link]",
        "100%|####|",
        "\U0001f600 smile",
    ):
        assert args in text, args
    assert "aGFjaw" not in text and "title" not in text and "10%" not in text
    assert all(line.startswith("worker:0@n2") for line in text.splitlines())
    assert max(map(len, text.splitlines())) >= 1 << 20
    lines = [json.loads(line)["line"] for line in read_raw_log("--json").splitlines()]
    assert lines[0].startswith("\x1b[31mred") and len(lines) == len(ODD.split(b"\n"))
    assert read_raw_log("--color", "always", "--grep", "smile").count(b"\x1b") == 2
