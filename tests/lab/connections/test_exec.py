"""Test `tfdeploy exec`: it runs one command on all hosts, folds equal outputs, and shows an outcome
for each host.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from support.lab.commandline import Tfdeploy
from support.lab.hosts import on_host, set_inventory
from support.stopwatch import Stopwatch
from support.waiting import wait_for
from tfdeploy.lab import Lab

PARTS = ("exit_code", "stdout", "stderr", "seconds", "error")


@pytest.fixture
def operator(loopback_lab: Lab, tfdeploy: Callable[[Lab], Tfdeploy]) -> Tfdeploy:
    return tfdeploy(loopback_lab)


def test_one_word_is_a_script_and_several_are_argv(operator: Tfdeploy) -> None:
    script = operator.json("exec", "--", "echo one; echo $((1+1)) | tr 2 3")["hosts"]
    assert {row["stdout"] for row in script} == {"one\n3\n"}
    argv = operator.json("exec", "--", "echo", "one; echo $((1+1))", "| tr 2 3", "--", "-n")[
        "hosts"
    ]
    assert {row["stdout"] for row in argv} == {"one; echo $((1+1)) | tr 2 3 -- -n\n"}


def test_equal_outputs_are_folded_and_foreign_bytes_are_tamed(operator: Tfdeploy) -> None:
    done = operator.run(
        "exec", "--", "echo same; printf 'a\\033[31mred\\033]0;t\\007 [/b]\\n' >&2", exit_code=0
    )
    assert done.stdout == "--- n[1-3] (3 hosts)\nsame\n"
    assert done.stderr == "ared [/b]\n"
    done = operator.run(
        "exec", "--", "case $HOME in *n2/*) echo two; exit 7;; *) echo same;; esac", exit_code=1
    )
    assert done.stdout == "--- n[1,3] (2 hosts)\nsame\n--- n2 exit 7\ntwo\n"


def test_the_json_of_an_exec(operator: Tfdeploy) -> None:
    answer = operator.json("exec", "--", "echo out; echo err >&2; exit 3", exit_code=1)
    assert answer.keys() == {"ok", "hosts"} and answer["ok"] is False
    for row in answer["hosts"]:
        assert row.keys() == {"host", *PARTS}
        assert [row[part] for part in PARTS if part != "seconds"] == [
            3,
            "out\n",
            "err\n",
            None,
        ] and row["seconds"] >= 0
    killed = operator.json("exec", "--limit", "n1", "--", "kill -9 $$", exit_code=1)["hosts"][0]
    assert killed["exit_code"] is None and killed["error"] is None


def test_exit_codes_of_several_hosts(operator: Tfdeploy) -> None:
    operator.run("exec", "--", "true", exit_code=0)
    operator.run("exec", "--", "false", exit_code=1)
    set_inventory(operator, hosts={"n3": {"port": 9}})
    rows = operator.json("exec", "--", "true", exit_code=4)["hosts"]
    assert [row["exit_code"] for row in rows] == [0, 0, None] and "refuses connections" in rows[2][
        "error"
    ]
    done = operator.run("exec", "--", "false", exit_code=4)
    assert "--- n[1-2] (2 hosts) exit 1" in done.stdout and "--- n3 no exit code" in done.stdout
    assert "[n3] 127.0.0.1:9 refuses connections" in done.stderr and "next: " in done.stderr


def test_which_hosts(operator: Tfdeploy) -> None:
    def asked(*args: str) -> list[str]:
        return [row["host"] for row in operator.json("exec", *args, "--", "true")["hosts"]]

    assert asked("--limit", "n1,n3") == ["n1", "n3"]
    assert asked("--limit", "worker") == ["n2", "n3"]
    assert asked("--limit", "n[2-3]", "--exclude", "n3") == ["n2"]
    assert asked("--exclude", "n*2") == ["n1", "n3"]
    operator.env["TFDEPLOY_LIMIT"] = "n2"
    assert asked() == ["n2"]
    done = operator.run("exec", "--limit", "n9", "--", "true", exit_code=2)
    assert "n9" in done.stderr and "next: " in done.stderr


def test_a_command_that_takes_too_long_is_given_up(operator: Tfdeploy) -> None:
    watch = Stopwatch()
    rows = operator.json(
        "exec", "--timeout", "1s", "--", "case $HOME in *n1/*) exec sleep 30;; esac", exit_code=1
    )["hosts"]
    assert watch.seconds < 10
    assert "did not end within 1 s" in rows[0]["error"]
    assert [row["exit_code"] for row in rows[1:]] == [0, 0]


def test_much_output_and_none_and_standard_input(operator: Tfdeploy) -> None:
    rows = operator.json("exec", "--", "head -c 3000000 /dev/zero | tr '\\0' x")["hosts"]
    assert {len(row["stdout"]) for row in rows} == {3_000_000}
    assert (
        operator.run("exec", "--", "cat", exit_code=0, stdin="not for them").stdout
        == "--- n[1-3] (3 hosts)\n"
    )
    assert operator.run("exec", "-q", "--", "echo", "here", exit_code=0).stdout == ""


def test_nothing_is_left_on_the_host_by_an_exec(operator: Tfdeploy) -> None:
    on_host(operator.lab, "n1", "rm -rf ~/tfdeploy")
    operator.run("exec", "--limit", "n1", "--", "true", exit_code=0)
    assert on_host(operator.lab, "n1", "ls -A ~/tfdeploy 2>/dev/null || true") == ""


def test_interrupted_exec_says_that_the_command_may_go_on(
    operator: Tfdeploy, tmp_path: Path
) -> None:
    started = tmp_path / "started"
    process = operator.start("exec", "--limit", "n1", "--", f"touch {started}; exec sleep 20")
    wait_for(started.exists, 20, "the command runs")
    os.killpg(process.pid, signal.SIGINT)
    printed, _ = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "the command may still run on the hosts\n" in printed


def test_command_without_dashes_is_shown_with_them(operator: Tfdeploy) -> None:
    done = operator.run("ssh", "n1", "df", "/", exit_code=2)
    assert "tfdeploy ssh n1 -- df /" in done.stderr
