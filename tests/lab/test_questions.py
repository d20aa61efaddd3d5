"""Test every question that a verb asks, on a real terminal whose screen is emulated by pyte.

Each test checks that the question and the answer are shown, and that the answer takes effect.
tests/unit/ui/test_question.py covers the displays and the accepted answers.
tests/unit/ui/dashboard/test_dashboard.py covers the questions of the dashboard.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from support.lab.commandline import Tfdeploy
from support.lab.hosts import on_host, set_inventory
from support.lab.jobs import write_job
from support.lab.releases import job_file, list_host_folder
from support.lab.remains import NO_PORTS, assert_nothing_left
from support.pseudo_terminal import ALT_ON, Terminal, plain
from tfdeploy.lab import Lab

pytestmark = pytest.mark.isolated
ECHOES = {
    "y\n": "y",
    "yes\n": "yes",
    "n\n": "n",
    "\n": "",
    "everything\n": "everything",
    "\x03": "^C",
    "\x04": "",
}


@pytest.fixture
def operator(pair: Lab, tfdeploy: Callable[[Lab], Tfdeploy]) -> Tfdeploy:
    return tfdeploy(pair)


def answered(operator: Tfdeploy, question: str, typed: str, *args: str) -> tuple[int, str]:
    """Run tfdeploy ARGS, wait for the question and answer it.

    Returns (exit code, the last screen).
    """
    terminal = Terminal(operator.argv(*args), operator.env, cwd=operator.cwd, columns=160, rows=30)
    try:
        asked = terminal.shows(question, within_s=60)
        assert asked[-1].endswith(f"{question} _"), asked
        terminal.type(typed.encode())
        code = terminal.finish(within_s=60)
        # pyte has no alternate screen, so a dashboard overwrites the question on pyte's screen.
        before = plain(terminal.output.partition(ALT_ON)[0]).decode()
        assert f"{question} {ECHOES[typed]}" in before, before
        return code, "\n".join(terminal.screen())
    finally:
        terminal.close()


def shrunk(operator: Tfdeploy, name: str) -> str:
    """Shrink a data set so much that the next sync would delete most of the data set's files on the
    hosts. Return the question that tfdeploy is expected to ask.
    """
    job_file(operator, name, data={"d": "./data"})
    data = operator.cwd / "data"
    data.mkdir()
    for number in range(20):
        (data / f"part-{number}").write_text("1")
    operator.run("sync", exit_code=0)
    for number in range(15):
        (data / f"part-{number}").unlink()
    return (
        "data d: the source lacks 15 of the 20 files that are on n[1-2]. "
        "Delete the 15 files on the hosts? (yes/no)"
    )


def test_sync_asks_before_it_deletes_most_of_a_data_set(operator: Tfdeploy) -> None:
    question = shrunk(operator, "asks-sync")
    before = list_host_folder(operator, "n2", "asks-sync/data")
    code, shown = answered(operator, question, "n\n", "sync")
    assert code == 3 and "these files would be deleted" in shown
    assert answered(operator, question, "\x03", "sync")[0] == 130
    assert list_host_folder(operator, "n2", "asks-sync/data") == before
    assert answered(operator, question, "y\n", "sync")[0] == 0
    assert {Path(name).name for name in list_host_folder(operator, "n2", "asks-sync/data/d")} == {
        f"part-{n}" for n in range(15, 20)
    }


def test_launch_asks_before_it_deletes_most_of_a_data_set(operator: Tfdeploy) -> None:
    question = shrunk(operator, "asks-launch")
    launch = ("launch", "--mode", "local", "--limit", "n2", "--", "true")
    question = question.replace("n[1-2]", "n2")
    code, shown = answered(operator, question, "\x04", *launch)
    assert code == 3 and "these files would be deleted" in shown and "sync failed" in shown
    code, shown = answered(operator, question, "yes\n", *launch)
    assert code == 0 and "succeeded" in shown, shown
    assert len(list_host_folder(operator, "n2", "asks-launch/data/d")) == 5


def test_trust_asks_before_it_records_or_replaces_a_key(operator: Tfdeploy) -> None:
    known = operator.home / "known_hosts"
    shutil.copy(operator.lab.known_hosts, known)
    set_inventory(operator, defaults={"known_hosts": str(known)})
    first, second = known.read_text().splitlines(keepends=True)
    known.write_text(first)
    record = "Record these keys? First compare the keys with those on the hosts (yes/no)"
    assert answered(operator, record, "n\n", "trust")[0] == 4 and known.read_text() == first
    assert answered(operator, record, "yes\n", "trust")[0] == 0 and known.read_text() != first
    changed = first.replace(first.split()[2], second.split()[2]) + second
    known.write_text(changed)
    replace = "Replace the key on record? First compare the keys with those on the hosts (yes/no)"
    assert (
        answered(operator, replace, "\n", "trust", "--renew", "n1")[0] == 4
        and known.read_text() == changed
    )
    assert (
        answered(operator, replace, "y\n", "trust", "--renew", "n1")[0] == 0
        and known.read_text() != changed
    )


def test_clean_asks_before_it_removes(
    new_lab: Callable[..., Lab], tfdeploy: Callable[[Lab], Tfdeploy]
) -> None:
    operator = tfdeploy(new_lab("loopback", 1))
    write_job(operator, "asks-clean", "quick.py", mode="local")
    operator.run("launch", "--wait", "-q", "--name", "gone", exit_code=0)
    # While the minder of the run lives, `clean` leaves the run alone.
    assert_nothing_left(operator, "gone", "asks-clean", ports=NO_PORTS)
    code, shown = answered(operator, "Remove all of it? (yes/no)", "\n", "clean")
    assert code == 2 and "nothing was removed" in shown
    assert answered(operator, "Remove all of it? (yes/no)", "y\n", "clean")[0] == 0
    assert operator.json("runs", "--all")["runs"] == []
    word = "All of this will be removed, even checkpoints. Type everything to continue:"
    code, shown = answered(operator, word, "yes\n", "clean", "--everything")
    assert code == 2 and "the word everything was not typed" in shown
    assert answered(operator, word, "everything\n", "clean", "--everything")[0] == 0
    assert on_host(operator.lab, "n1", "ls -A ~/tfdeploy 2>/dev/null || true") == ""


def test_logs_ask_before_raw_bytes_go_to_a_terminal(operator: Tfdeploy) -> None:
    question = "what you see. Continue? (yes/no)"
    code, shown = answered(operator, question, "n\n", "logs", "-o", "raw", "no-such-run")
    assert (
        code == 3
        and "raw bytes of programs are printed on a terminal only after you agree" in shown
    )
    code, shown = answered(operator, question, "y\n", "logs", "-o", "raw", "no-such-run")
    assert code == 2 and "no-such-run" in shown
