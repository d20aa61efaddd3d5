"""Test `tfdeploy report` for real runs. The report is written to a file, or it is served as a page
while the run is active.
"""

from __future__ import annotations

import csv
import re
import signal
import socket
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.browser import RecordingBrowser, find_browser, load_in_browser
from support.lab.commandline import Tfdeploy, wait_for_end
from support.lab.glance import Glance
from support.lab.hosts import on_host
from support.lab.jobs import open_gate, write_job
from support.pseudo_terminal import Terminal
from support.stopwatch import Stopwatch
from support.waiting import wait_for
from tfdeploy.lab import Lab

SAYS = {"told": r"says (\d+)"}


GATED = """import os, sys, time
while not os.path.exists("gate"):
    time.sleep(0.01)
print("sent x=0.2500", flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def operator(loopback_lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tfdeploy]:
    made = Tfdeploy(loopback_lab, tmp_path_factory.mktemp("report") / "operator")
    yield made
    made.end_all()


def ask(url: str, host: str | None = None) -> str:
    request = urllib.request.Request(url, headers={"Host": host} if host else {})
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
        request, timeout=30
    ) as answer:
        return str(answer.read().decode())


def test_a_run_that_failed_and_what_its_page_has(operator: Tfdeploy) -> None:
    write_job(
        operator, "broken", "crash.py", "--code=7", "--after=0.5", "--only=worker:1", metrics=SAYS
    )
    operator.run("launch", "--wait", "-q", "--name", "broken-1", exit_code=1)
    done = operator.run("report", "broken-1", exit_code=0)
    assert done.stdout == "broken-1.html\n"
    text = (operator.cwd / "broken-1.html").read_text()
    assert "worker:1 on n3 failed with exit code 7" in text and 'class="bar bad"' in text
    assert "The last lines of worker:1" in text and "tfdeploy launch --mode async" in text
    again = operator.run("report", "broken-1", exit_code=2)
    assert "exists already" in again.stderr and "--overwrite" in again.stderr
    operator.run("report", "broken-1", "--overwrite", exit_code=0)
    answer = operator.json("report", "broken-1", "--to", str(operator.cwd / "other.html"))
    assert answer == {"run": "broken-1", "file": str(operator.cwd / "other.html")}
    assert not [path for path in operator.cwd.iterdir() if path.name.startswith(".")]


def test_status_shows_the_step_of_event_files_and_behind_a_long_text_and_no_summaries(
    operator: Tfdeploy,
) -> None:
    write_job(operator, "summaries", "events.py", "--summaries", keep=["ckpt"])
    operator.run("launch", "--wait", "-q", "--name", "summaries-1", exit_code=0)
    rows: dict[str, Any] = {}

    # The last sample may be taken after the end of the run.
    def seen() -> bool:
        rows.update({row["task"]: row for row in operator.json("status", "summaries-1")["tasks"]})
        return rows["worker:0"]["step"] == 120 and rows["worker:1"]["step"] == 41

    wait_for(seen, 20, "the steps are known")
    first, second = rows["worker:0"], rows["worker:1"]
    assert second["loss"] == 0.125
    assert (
        sum("summaries" in name for name in first["metrics"]) == 20
        and first["metrics"]["logs/Variable_4/sec"] == 0
    )
    shown = operator.run("status", "summaries-1", exit_code=0).stdout.splitlines()
    row = next(line for line in shown if line.startswith("worker:0"))
    assert (
        " 120 " in row
        and "global_step/sec 12.5" in row
        and "mean_1" not in row
        and "Variable_4" not in row
    )
    assert len(row) < 140


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (["--to", "/no/such/folder/x.html"], "there is no folder"),
        (["--to", "."], "is a folder"),
        (["--port", "1234"], "--port needs --serve"),
        (["--serve", "--to", "x.html"], "--serve writes no file"),
        (["--output", "csv", "--serve"], "a browser shows only the page"),
        (["-o", "csv", "--open"], "a browser shows only the page"),
    ],
)
def test_bad_input_is_refused_before_anything_is_written(
    operator: Tfdeploy, args: list[str], why: str
) -> None:
    write_job(operator, "quick", "talk.py", "--lines=1")
    if not (operator.cwd / "talked").exists():
        operator.run("launch", "--wait", "-q", "--name", "quick-1", exit_code=0)
        (operator.cwd / "talked").touch()
    before = set(operator.cwd.iterdir())
    refused = operator.run("report", *args, "quick-1", exit_code=2)
    assert why in refused.stderr and "next:" in refused.stderr and "Traceback" not in refused.stderr
    assert set(operator.cwd.iterdir()) == before


def test_a_printed_metric_is_on_the_dashboard_and_in_status_within_a_second(
    operator: Tfdeploy,
) -> None:
    write_job(operator, "prompt", "vocal.py", metrics={"seen": r"x=([\d.]+)"})
    (operator.cwd / "vocal.py").write_text(GATED)
    operator.run("launch", "--detach", "-q", "--name", "prompt-1", exit_code=0)
    command = operator.argv("status", "prompt-1", "--watch")
    terminal = Terminal(command, operator.env, cwd=operator.cwd, columns=180, rows=30)
    try:
        terminal.until("worker:0")
        watch = Stopwatch()
        open_gate(operator, "prompt-1", "prompt", "n2")
        terminal.until("seen 0.25")
        assert watch.seconds < 1.0
        terminal.type(b"q")
        assert terminal.finish() == 0
    finally:
        terminal.close()
    rows = {row["task"]: row["metrics"] for row in operator.json("status", "prompt-1")["tasks"]}
    assert rows["worker:0"] == {"seen": 0.25}
    operator.run("stop", "prompt-1", "--now", exit_code=0)


def test_metrics_are_noted_with_nobody_attached_and_a_live_page_has_them(
    operator: Tfdeploy, tmp_path: Path
) -> None:
    write_job(operator, "live", "stubborn.py", metrics={"told": r"(\d+)"})
    operator.run("launch", "--detach", "-q", "--name", "live-1", exit_code=0)
    browser = RecordingBrowser(tmp_path / "browser")
    process = operator.start(
        "report", "live-1", "--serve", "-q", "--open", env={"BROWSER": str(browser.program)}
    )
    assert process.stdout is not None
    url = process.stdout.readline().strip()
    match = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/[0-9a-f]{32}/", url)
    assert match, url
    assert 'http-equiv="refresh"' in ask(url) and "live-1" in ask(url)
    for wrong, host in (
        (url[:-5] + "0000/", None),
        (f"http://127.0.0.1:{match[1]}/", None),
        (url, "evil.example.org"),
    ):
        with pytest.raises(urllib.error.HTTPError, match="404") as refused:
            ask(wrong, host)
        refused.value.close()
    wait_for(lambda: "hosts: CPU" in ask(url) or ">CPU<" in ask(url), 60, "samples reach the page")
    if find_browser():
        shown, complaints = load_in_browser(url, tmp_path / "profile")
        assert "live-1" in shown and "<svg" in shown and not complaints
    leading_there = browser.assert_led_to(url)
    process.send_signal(signal.SIGINT)
    assert process.wait(120) == 0 and not leading_there.parent.exists()
    with pytest.raises(OSError), socket.create_connection(("127.0.0.1", int(match[1])), timeout=2):
        pass
    operator.run("stop", "live-1", "--now", exit_code=0)


def test_the_samples_of_a_run_as_csv(operator: Tfdeploy) -> None:
    write_job(operator, "table", "stubborn.py", metrics={"told": r"(\d+)"})
    operator.run("launch", "--detach", "-q", "--name", "table-1", exit_code=0)

    def rows() -> list[dict[str, str]]:
        assert (
            operator.run("report", "table-1", "-o", "csv", "--overwrite", exit_code=0).stdout
            == "table-1.csv\n"
        )
        with (operator.cwd / "table-1.csv").open(newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file, strict=True))

    def complete_rows() -> list[dict[str, str]]:
        """Return the rows, or no rows if a host has taken no sample yet."""
        table = rows()
        tasks = {row["task"] for row in table}
        told = any(row.get("told") for row in table)
        return table if told and tasks == {"ps:0", "worker:0", "worker:1"} else []

    task_rows = wait_for(complete_rows, 60, "samples reach the table")
    assert all(row["attempt"] == "1" for row in task_rows)
    assert [row["time"] for row in task_rows] == sorted(row["time"] for row in task_rows)
    assert any(float(row["memory_bytes"] or 0) > 1e6 for row in task_rows)
    assert not (operator.cwd / "table-1.html").exists()
    operator.run("stop", "table-1", "--now", exit_code=0)


def test_a_death_that_nobody_saw_stands_in_the_timeline(operator: Tfdeploy, tmp_path: Path) -> None:
    write_job(
        operator,
        "alone",
        "quick.py",
        "--gate=1",
        "--failat=2",
        restart={"max": 1, "backoff": ["100ms", "200ms"]},
    )
    operator.run("launch", "--detach", "-q", "--name", "alone-1", exit_code=0)
    open_gate(operator, "alone-1", "alone")
    operator.wait_until("failed", "alone-1")
    operator.run("report", "alone-1", "--to", str(tmp_path / "alone.html"))
    page = (tmp_path / "alone.html").read_text()
    assert re.search(r"worker:\d, attempt 1: failed: 3 after ", page)
    assert re.search(r"worker:\d, attempt 2: (failed: 3|gave up) after ", page)


def test_a_run_reads_the_same_whether_or_not_somebody_watched(
    operator: Tfdeploy, tfdeploy: Callable[[Lab], Tfdeploy], tmp_path: Path
) -> None:
    """The operator who launches the run stays attached and records its events. Another operator has
    no such record. Both get the same report.
    """
    restart = {"max": 2, "backoff": ["100ms", "200ms"]}
    write_job(operator, "seen", "quick.py", "--gate=5", "--steps=9", restart=restart)
    launching = operator.start("launch", "--wait", "-q", "--name", "seen-1")

    glance = Glance(operator.lab, "seen-1")

    def worker(attempt: int) -> dict[str, Any] | None:
        answer = operator.json("status", "seen-1", exit_code=None) if glance() else {}
        # Before the run counts as up, the death of a task would undo the launch.
        rows = answer["tasks"] if answer.get("state") == "running" else []
        return next(
            (
                row
                for row in rows
                if (row["task"], row["attempt"], row["state"]) == ("worker:0", attempt, "running")
            ),
            None,
        )

    first = wait_for(lambda: worker(1), 60, "the worker runs")
    on_host(operator.lab, first["host"], f"kill -KILL {first['pid']}")
    wait_for(lambda: worker(2), 60, "it runs again")
    operator.run("stop", "seen-1", "--now", exit_code=0)
    # Until then, the record of the events may be incomplete.
    wait_for_end(launching)
    other = tfdeploy(operator.lab)
    timelines, answers = [], []
    for each in (operator, other):
        each.run(
            "report", "seen-1", "--to", str(tmp_path / "seen.html"), "--overwrite", exit_code=0
        )
        timelines += re.findall(
            r'aria-label="attempts over time">.*?</svg>', (tmp_path / "seen.html").read_text()
        )
        answers.append(each.json("status", "seen-1"))
    assert timelines[0] == timelines[1] and answers[0] == answers[1]
    (row,) = (row for row in operator.json("runs")["runs"] if row["run"] == "seen-1")
    assert [row[key] for key in ("started", "ended")] == [
        answers[0][key] for key in ("started", "ended")
    ]
    assert re.search(
        r'"bar bad"><title>worker:0, attempt 1: killed: 9 after \S+ s</title>', timelines[0]
    ), timelines[0]


def told_by(operator: Tfdeploy, run: str) -> set[float | None]:
    rows = operator.json("status", run)["tasks"]
    return {row["metrics"].get("told") for row in rows if row["task"].startswith("worker")}


def test_two_runs_are_compared_by_flag_file_and_last_value(operator: Tfdeploy) -> None:
    write_job(operator, "pair", "talk.py", "--lines=2", metrics={"told": r"says (\d+)"})
    operator.run("launch", "--wait", "-q", "--name", "pair-1", exit_code=0)
    (operator.cwd / "talk.py").write_text((operator.cwd / "talk.py").read_text() + "# slower\n")
    operator.run(
        "launch",
        "--wait",
        "-q",
        "--name",
        "pair-2",
        "--",
        "python",
        "talk.py",
        "--lines=4",
        exit_code=0,
    )
    # The last sample may be taken after the end of the run.
    for run, value in (("pair-1", 2), ("pair-2", 4)):
        wait_for(
            lambda run=run, value=value: told_by(operator, run) == {value}, 20, "the last sample"
        )
    answer = operator.json("compare", "pair-1", "pair-2", "--to", str(operator.cwd / "pair.html"))
    by_name = {(row["what"], row["key"]): row["values"] for row in answer["differs"]}
    assert (
        answer["runs"] == ["pair-1", "pair-2"]
        and by_name["command", "--lines"] == ["2", "4"]
        and ("code", "talk.py") in by_name
    )
    assert not {what for what, _ in by_name} & {"env", "versions"}
    assert {row["run"]: row["value"] for row in answer["final"] if row["metric"] == "told"} == {
        "pair-1": 2,
        "pair-2": 4,
    }
    assert "pair-1" in (operator.cwd / "pair.html").read_text()
    shown = operator.run("compare", "pair-1", "pair-2", exit_code=0).stdout
    assert (
        "--lines" in shown
        and "told" in shown
        and "talk.py: pair-1 -> pair-2" in shown
        and "  +# slower" in shown
    )
    (lines,) = answer["lines"]
    assert (lines["path"], lines["diff"][-1], lines["why"]) == ("talk.py", "+# slower", None)
    for host in operator.lab.hosts:
        on_host(operator.lab, host, "rm -r ~/tfdeploy/pair/releases/*")
    (lines,) = operator.json("compare", "pair-1", "pair-2")["lines"]
    assert (lines["diff"], lines["why"]) == (None, "no host has the release of pair-2 any more")
    for args, why in (
        (["pair-1"], "1 run cannot"),
        (["pair-1", "pair-1"], "named twice"),
        (["pair-1", "no-such"], "no run"),
    ):
        assert why in operator.run("compare", *args, exit_code=2).stderr


def test_what_report_compare_and_fetch_write_is_in_no_release(operator: Tfdeploy) -> None:
    write_job(operator, "pages", "quick.py", "--steps=2")
    for run in ("pages-1", "pages-2"):
        operator.run("launch", "--wait", "-q", "--name", run, exit_code=0)
    release = operator.json("sync")["hosts"][0]["release"]
    operator.run("report", "pages-1", exit_code=0)
    operator.run("report", "pages-1", "--output", "csv", exit_code=0)
    operator.run("compare", "pages-1", "pages-2", "--to", "both.html", exit_code=0)
    operator.run("fetch", "pages-1", exit_code=0)
    operator.run("fetch", "pages-1", "--to", "taken", exit_code=0)
    assert {"pages-1.html", "pages-1.csv", "both.html", "taken"} <= {
        path.name for path in operator.cwd.iterdir()
    }
    assert operator.json("sync")["hosts"][0]["release"] == release


def test_large_code_is_said_with_the_lines_that_avoid_it(operator: Tfdeploy) -> None:
    write_job(operator, "large", "quick.py")
    (operator.cwd / "shards").mkdir()
    for name in ("a", "b"):
        with (operator.cwd / "shards" / name).open("wb") as file:
            file.truncate(30_000_000)
    expected_text = "shards/ (60 MB). Every run has its own copy of these files"
    lines = ("`data: {shards: ./shards/}` in the job file", "echo /shards/ >> .tfdeployignore")
    for args in (("sync", "--dry-run"), ("launch", "--dry-run")):
        stderr = operator.run(*args, exit_code=0).stderr
        assert all(each in stderr for each in (expected_text, *lines)), stderr
    (operator.cwd / ".tfdeployignore").write_text("/shards/\n")
    assert "code:" not in operator.run("sync", "--dry-run", exit_code=0).stderr
    (operator.cwd / ".tfdeployignore").unlink()
    write_job(operator, "large", "quick.py", data={"shards": "./shards/"})
    assert "code:" not in operator.run("sync", "--dry-run", exit_code=0).stderr
    (operator.cwd / "shards" / "a").unlink()
