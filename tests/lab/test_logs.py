"""`tfdeploy logs`: the lines of all tasks in one stream, whatever bytes they hold, cut down as asked."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime

import pytest

from support.lab.commandline import Tfdeploy
from support.lab.jobs import write_job
from tfdeploy.lab import Lab

LINES = 6
RUN = "talk-1"
LINE = re.compile(r"(ps|worker):\d@n\d +\| (ps|worker):\d says \d$")


@pytest.fixture(scope="module")
def talked(loopback_lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Tfdeploy:
    """An operator whose run has ended: each of its three tasks said LINES lines."""
    operator = Tfdeploy(loopback_lab, tmp_path_factory.mktemp("talked"))
    write_job(operator, "talk", "talk.py", f"--lines={LINES}", "--pause=0.05")
    operator.run("launch", "--wait", "--name", RUN, exit_code=0)
    return operator


def rows(operator: Tfdeploy, *words: str) -> list[dict[str, object]]:
    done = operator.run("logs", *words, "--output", "json", exit_code=0)
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_all_lines_merged_in_time_and_in_order_for_each_task(talked: Tfdeploy) -> None:
    found = rows(talked)
    assert [row["time"] for row in found] == sorted(str(row["time"]) for row in found)
    for task, host in (("ps:0", "n1"), ("worker:0", "n2"), ("worker:1", "n3")):
        mine = [row for row in found if row["task"] == task]
        assert {row["host"] for row in mine} == {host}
        assert [row["line"] for row in mine if row["stream"] == "out"] == [f"{task} says {n}" for n in (1, 2, 4, 5)]
        assert [row["line"] for row in mine if row["stream"] == "err"] == [f"{task} says {n}" for n in (3, 6)]
    for row in found:
        assert row.keys() == {"time", "run", "task", "host", "attempt", "stream", "line"}
        assert (row["run"], row["attempt"]) == (RUN, 1)
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", str(row["time"]))
    text = talked.run("logs", exit_code=0).stdout
    assert all(LINE.match(line) for line in text.splitlines()), text
    assert "\x1b" not in text
    assert rows(talked, "--json") == found


def test_only_what_is_asked_for(talked: Tfdeploy) -> None:
    assert [row["line"] for row in rows(talked, "--task", "worker:1", "-n", "2")] == ["worker:1 says 5", "worker:1 says 6"]
    assert {row["task"] for row in rows(talked, "--task", "worker")} == {"worker:0", "worker:1"}
    assert {row["task"] for row in rows(talked, "--host", "n1", "--host", "n3")} == {"ps:0", "worker:1"}
    assert [row["line"] for row in rows(talked, "--grep", "says [12]$", "--task", "ps:0")] == ["ps:0 says 1", "ps:0 says 2"]
    assert len(rows(talked, "-n", "1")) == 3
    assert rows(talked, "-n", "0") == []
    assert len(rows(talked, "--since", "1h")) == 3 * LINES
    assert rows(talked, "--since", "0s") == []
    assert [row["line"] for row in rows(talked, RUN[:3], "--task", "ps", "-n", "1")] == [f"ps:0 says {LINES}"]


AT = """import sys, time
now = float(sys.argv.pop(1))
time.time = lambda: now
from tfdeploy.cli.main import main
sys.exit(main())"""


def test_since_cuts_at_a_time(talked: Tfdeploy) -> None:
    """`--since 0s` of an operator whose clock stands between the third line and the fourth."""
    found = rows(talked, "--task", "worker:0")
    before, after = (datetime.fromisoformat(str(row["time"]).replace("Z", "+00:00")).timestamp() for row in found[2:4])
    words = [sys.executable, "-c", AT, str((before + after) / 2), "logs", "--task", "worker:0", "--since", "0s", "--json"]
    argv = talked.lab.operator(words)
    done = subprocess.run(argv, env=talked.env, cwd=talked.cwd, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert [json.loads(line) for line in done.stdout.splitlines()] == found[3:]


def test_timestamps_and_raw(talked: Tfdeploy) -> None:
    text = talked.run("logs", "--timestamps", "--task", "ps", exit_code=0).stdout
    assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z ps:0@n1 +\| ps:0 says 1\n", text), text
    raw = talked.run("logs", "--output", "raw", "--task", "ps", exit_code=0).stdout
    assert raw == "".join(f"ps:0 says {number}\n" for number in range(1, LINES + 1))


def test_unknown_runs_tasks_and_expressions_are_usage_errors(talked: Tfdeploy) -> None:
    for words, what in (
        (("nothing-like-it",), "nothing-like-it"),
        (("--task", "worker:7"), "no task"),
        (("--host", "n7"), "matches no host"),
        (("--grep", "("), "not a regular expression"),
        (("-n", "-3"), "-3"),
    ):
        done = talked.run("logs", *words, exit_code=2)
        assert what in done.stderr and "next: " in done.stderr and done.stdout == "", done.stderr


@pytest.mark.fault("47 logs | head")
def test_a_reader_that_goes_away_ends_it_quietly(talked: Tfdeploy) -> None:
    for words in ((), ("-f",), ("--json",)):
        argv = talked.argv("logs", *words)
        with subprocess.Popen(argv, env=talked.env, cwd=talked.cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as logs:
            assert logs.stdout is not None and logs.stderr is not None
            assert logs.stdout.readline()
            logs.stdout.close()
            assert logs.stderr.read() == b""
            assert logs.wait(30) == 0


def test_following_ends_with_the_run_and_misses_nothing(talked: Tfdeploy, tfdeploy: Callable[[Lab], Tfdeploy]) -> None:
    operator = tfdeploy(talked.lab)
    write_job(operator, "follow", "talk.py", "--lines=40", "--pause=0.05")
    operator.run("launch", "--detach", "--name", "follow-1", exit_code=0)
    following = operator.start("logs", "-f", "follow-1", "--json")
    said, _ = following.communicate(timeout=60)
    assert following.returncode == 0, said
    found = [json.loads(line) for line in said.splitlines()]
    for task in ("ps:0", "worker:0", "worker:1"):
        numbers = [int(row["line"].split()[-1]) for row in found if row["task"] == task]
        assert sorted(numbers) == list(range(1, 41)), task
    assert operator.state("follow-1") == "succeeded"


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
    assert re.search(r"\[n2\] no lines from here: .*refuses connections", done.stderr), done.stderr


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
def test_foreign_bytes_are_safe_in_text_and_whole_in_raw(talked: Tfdeploy, tfdeploy: Callable[[Lab], Tfdeploy]) -> None:
    operator = tfdeploy(talked.lab)
    (operator.cwd / "odd.bin").write_bytes(ODD)
    write_job(operator, "odd-lines", "talk.py", "--odd=odd.bin", "--lines=0")
    operator.run("launch", "--wait", "--name", "odd-lines-1", exit_code=0)

    def said(*words: str) -> bytes:
        argv = operator.argv("logs", "odd-lines-1", "--task", "worker:0", *words)
        return subprocess.run(argv, env=operator.env, cwd=operator.cwd, capture_output=True, timeout=60, check=True).stdout

    assert said("--output", "raw") == ODD
    text = said("--color", "never").decode("utf-8")
    assert not FORBIDDEN.search(text)
    for words in ("red ", "nul ", "[/foo] [bold]not markup[/bold] [link=http://x]y[/link]", "100%|####|", "\U0001f600 smile"):
        assert words in text, words
    assert "aGFjaw" not in text and "title" not in text and "10%" not in text
    assert all(line.startswith("worker:0@n2") for line in text.splitlines())
    assert max(map(len, text.splitlines())) >= 1 << 20
    lines = [json.loads(line)["line"] for line in said("--json").splitlines()]
    assert lines[0].startswith("\x1b[31mred") and len(lines) == len(ODD.split(b"\n"))
    assert said("--color", "always", "--grep", "smile").count(b"\x1b") == 2
