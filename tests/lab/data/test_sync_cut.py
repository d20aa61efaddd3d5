"""Test a sync that is cut off, killed or run twice, or whose source changes.

The next sync resumes the interrupted one. No incomplete tree becomes a release (a version of the
code on a host).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from support.lab.commandline import Tfdeploy
from support.lab.jobs import open_gate, write_job
from support.lab.releases import (
    job_file,
    list_host_folder,
    list_leftovers,
    list_local_folder,
    list_releases,
    wait_for_bytes,
)
from support.lab.remains import assert_nothing_left
from support.waiting import wait_for
from tfdeploy.lab import Lab

pytestmark = pytest.mark.isolated
MIB = 1 << 20
# The rate of each host's link: 10 MB/s.
RATE = "80mbit"


@pytest.fixture(scope="module")
def slow_lab(new_lab: Callable[..., Lab]) -> Lab:
    """Return a lab of two hosts on slow links."""
    return new_lab("isolated", 2, rate=RATE)


@pytest.fixture
def slow(slow_lab: Lab, tfdeploy: Callable[[Lab], Tfdeploy]) -> Tfdeploy:
    return tfdeploy(slow_lab)


def instead_of_rsync(operator: Tfdeploy, script: str) -> dict[str, str]:
    """Return environment variables that make tfdeploy use this shell script as its rsync."""
    folder = operator.home / "bin"
    folder.mkdir()
    (folder / "rsync").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "rsync").chmod(0o755)
    return {"PATH": f"{folder}:{operator.env['PATH']}"}


def throttled(operator: Tfdeploy) -> dict[str, str]:
    """Return environment variables that make tfdeploy use a slow rsync. So a test has time to act
    during the transfer, even on a busy machine.
    """
    return instead_of_rsync(operator, f'exec {shutil.which("rsync")} --bwlimit=2m "$@"')


def processes_with(argument: str) -> list[str]:
    """Return the command lines of the processes of this machine that have the argument."""
    command_lines = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            command_lines.append(file.read_text(errors="replace"))
    return [line for line in command_lines if argument in line.split("\0")]


def run_while_paused(
    operator: Tfdeploy, first: subprocess.Popen[str], says: str, *args: str
) -> tuple[int, str]:
    """Run a second tfdeploy, and return its exit code and its output.

    The first tfdeploy is paused until the second one has printed `says`.
    """
    os.kill(first.pid, signal.SIGSTOP)
    output = operator.home / "second"
    with output.open("w") as file:
        second = operator.start(*args, stdout=file)
    try:
        wait_for(lambda: re.search(says, output.read_text()), 60, f"the second says {says!r}")
    finally:
        os.kill(first.pid, signal.SIGCONT)
    return second.wait(120), output.read_text()


@pytest.mark.fault("19 the cable pulled at half")
def test_cut_at_half_goes_on_from_there_and_the_old_release_stays(slow: Tfdeploy) -> None:
    name = "half"
    code = job_file(slow, name)
    (code / "small").write_text("first")
    first = slow.json("sync", "--limit", "n1")["hosts"][0]["release"]
    before = list_host_folder(slow, "n1", f"{name}/releases/{first}")
    (code / "big.bin").write_bytes(os.urandom(48 * MIB))
    syncing = slow.start("sync", "--limit", "n1", env=throttled(slow))
    wait_for_bytes(slow, "n1", name, 12 * MIB)
    slow.lab.cut("n1")
    try:
        output, _ = syncing.communicate(timeout=120)
        assert syncing.returncode == 4, output
        assert "n1" in output and "next: " in output, output
    finally:
        slow.lab.heal("n1")
    assert list_releases(slow, "n1", name) == [first]
    assert list_host_folder(slow, "n1", f"{name}/releases/{first}") == before
    row = slow.json("sync", "--limit", "n1")["hosts"][0]
    assert row["ok"] and row["bytes_sent"] < 40 * MIB, row
    assert list_host_folder(slow, "n1", f"{name}/releases/{row['release']}") == list_local_folder(
        code
    )
    assert list_leftovers(slow, "n1", name) == ""


@pytest.mark.fault("25 kill -9 of tfdeploy in the middle of a sync")
def test_killed_in_the_middle_and_started_again_converges(slow: Tfdeploy) -> None:
    code = job_file(slow, "killed", data={"d": "./data"})
    (slow.cwd / "data").mkdir()
    (slow.cwd / "data/d.bin").write_bytes(os.urandom(16 * MIB))
    (code / "big.bin").write_bytes(os.urandom(2 * MIB))
    syncing = slow.start("sync", "--bwlimit", "2M")
    wait_for_bytes(slow, "n1", "killed", 8 * MIB)
    os.kill(syncing.pid, signal.SIGKILL)
    syncing.wait(120)
    answer = slow.json("sync")
    assert answer["ok"], answer
    for row in answer["hosts"]:
        assert row["bytes_sent"] < 14 * MIB
        assert list_host_folder(
            slow, row["host"], f"killed/releases/{row['release']}"
        ) == list_local_folder(code)
        assert list_host_folder(slow, row["host"], "killed/data/d") == list_local_folder(
            slow.cwd / "data"
        )
        assert list_leftovers(slow, row["host"], "killed") == ""


@pytest.mark.fault("25 kill -9 of tfdeploy in the middle of a sync")
def test_rsync_ends_with_a_killed_sync_and_the_next_one_goes_on(slow: Tfdeploy) -> None:
    job_file(slow, "alone", data={"d": "./data"})
    (slow.cwd / "data").mkdir()
    (slow.cwd / "data/d.bin").write_bytes(os.urandom(64 * MIB))
    syncing = slow.start("sync", "--limit", "n1", "--bwlimit", "1M")
    wait_for_bytes(slow, "n1", "alone", 8 * MIB)
    assert processes_with(f"{slow.cwd}/data/")
    os.kill(syncing.pid, signal.SIGKILL)
    syncing.wait(120)
    wait_for(lambda: not processes_with(f"{slow.cwd}/data/"), 30, "rsync has ended")
    (row,) = slow.json("sync", "--limit", "n1")["hosts"]
    assert row["bytes_sent"] < 60 * MIB
    assert list_host_folder(slow, "n1", "alone/data/d") == list_local_folder(slow.cwd / "data")
    assert list_leftovers(slow, "n1", "alone") == ""


@pytest.mark.fault("25 two syncs at once")
def test_the_second_of_two_waits_and_says_for_whom(slow: Tfdeploy) -> None:
    folder = job_file(slow, "two")
    (folder / "big.bin").write_bytes(os.urandom(8 * MIB))
    first = slow.start("sync", "--json", env=throttled(slow))
    wait_for_bytes(slow, "n1", "two", MIB)
    code, second = run_while_paused(
        slow, first, r"waiting for the sync of \S+@\S+ \(pid \d+\) since", "sync"
    )
    assert code == 0 and "had everything already" in second, second
    output, _ = first.communicate(timeout=120)
    assert first.returncode == 0, output
    assert json.loads(output.splitlines()[-1])["ok"]


@pytest.mark.fault("67 a clean while a run lives, or another operator launches")
def test_clean_waits_for_a_launch_and_takes_nothing_of_its_run(slow: Tfdeploy) -> None:
    write_job(slow, "launched", "quick.py")
    slow.run("launch", "--wait", "-q", "--name", "over", exit_code=0)
    # While the minders of the run live, `clean` leaves the run alone.
    assert_nothing_left(slow, "over", "launched")
    write_job(slow, "launched", "quick.py", "--gate=5", "--steps=9")
    (slow.cwd / "big.bin").write_bytes(os.urandom(8 * MIB))
    launching = slow.start("launch", "--detach", "-q", "--name", "lives", env=throttled(slow))
    wait_for_bytes(slow, "n1", "launched", MIB)
    code, cleaned = run_while_paused(
        slow, launching, "waiting for the launch of", "clean", "-y", "--json"
    )
    assert code == 0 and '"name": "over"' in cleaned and '"name": "lives"' not in cleaned, cleaned
    output, _ = launching.communicate(timeout=120)
    assert launching.returncode == 0, output
    assert {task["state"] for task in slow.json("status", "lives")["tasks"]} == {"running"}
    open_gate(slow, "lives", "launched")
    # `clean` has removed nothing that this run needs.
    slow.run("logs", "-f", "lives", exit_code=0, timeout_s=60)


@pytest.mark.fault("21 a file that changes while it is sent")
def test_a_file_that_changes_while_it_is_sent_is_sent_again_and_the_others_are_not(
    slow: Tfdeploy,
) -> None:
    code = job_file(slow, "changing")
    (code / "a.bin").write_bytes(os.urandom(12 * MIB))
    (code / "b.bin").write_bytes(os.urandom(MIB))
    syncing = slow.start("sync", "--json", "--limit", "n1", env=throttled(slow))
    wait_for_bytes(slow, "n1", "changing", 2 * MIB)
    (code / "b.bin").write_bytes(os.urandom(MIB))
    output, _ = syncing.communicate(timeout=120)
    assert syncing.returncode == 0, output
    row = json.loads(output.splitlines()[-1])["hosts"][0]
    assert list_host_folder(slow, "n1", f"changing/releases/{row['release']}") == list_local_folder(
        code
    )
    assert row["bytes_sent"] < 20 * MIB
    assert list_leftovers(slow, "n1", "changing") == ""


def test_data_written_to_behind_the_sender_s_back_is_sent_again(slow: Tfdeploy) -> None:
    """The test changes the content of a file that was already sent, but not the file's size and
    time. tfdeploy must notice this and send the file again.
    """
    job_file(slow, "behind", data={"d": "./data"})
    (slow.cwd / "data").mkdir()
    data = slow.cwd / "data/d.bin"
    data.write_bytes(os.urandom(12 * MIB))
    before = data.stat()
    syncing = slow.start("sync", "--json", "--limit", "n1", "--bwlimit", "2M")
    wait_for_bytes(slow, "n1", "behind", 2 * MIB)
    with data.open("r+b") as file:
        file.write(os.urandom(1000))
    os.utime(data, ns=(before.st_atime_ns, before.st_mtime_ns))
    output, _ = syncing.communicate(timeout=120)
    assert syncing.returncode == 0, output
    assert list_host_folder(slow, "n1", "behind/data/d") == list_local_folder(slow.cwd / "data")
    assert json.loads(output.splitlines()[-1])["hosts"][0]["bytes_sent"] < 14 * MIB


def scribbled(operator: Tfdeploy, file: str) -> dict[str, str]:
    """Return environment variables with which tfdeploy uses an rsync that changes the file before
    and after the transfer."""
    scribble = (
        f"dd if=/dev/urandom of={operator.cwd / file} bs=64k count=1 conv=notrunc status=none"
    )
    return instead_of_rsync(
        operator, f'{scribble}\n{shutil.which("rsync")} "$@"\ncode=$?\n{scribble}\nexit $code'
    )


@pytest.mark.fault("21 a file that keeps changing")
def test_a_file_that_keeps_changing_is_refused(slow: Tfdeploy) -> None:
    code = job_file(slow, "restless")
    # Code of this size is sent through rsync.
    (code / "state").write_bytes(os.urandom(12 * MIB))
    stderr = slow.run(
        "sync", "--limit", "n1", exit_code=3, env=scribbled(slow, "code/state")
    ).stderr
    assert "state changed while it was sent" in stderr and "next: " in stderr, stderr
    assert list_releases(slow, "n1", "restless") == []


# This script changes and truncates the file each time a process opens it. So the process reads
# fewer bytes than the file had when it was opened.
SHRINKING = """
import ctypes, os, random, sys
IN_OPEN = 0x20
libc = ctypes.CDLL(None)
with open(sys.argv[1], "wb", 0) as file:
    file.write(os.urandom(1 << 22))
    watch = libc.inotify_init()
    assert libc.inotify_add_watch(watch, os.fsencode(sys.argv[1]), IN_OPEN) > 0
    print("ready", flush=True)
    while os.read(watch, 4096):
        os.pwrite(file.fileno(), os.urandom(1 << 16), random.randrange(1 << 20))
        file.truncate(random.randrange(1 << 21, 1 << 22))
"""


def test_data_that_keep_changing_and_get_shorter_are_refused(slow: Tfdeploy) -> None:
    job_file(slow, "shrinking", data={"d": "./data"})
    (slow.cwd / "data").mkdir()
    (slow.cwd / "data/quiet").write_text("quiet")
    with subprocess.Popen(
        [sys.executable, "-c", SHRINKING, "data/state"],
        cwd=slow.cwd,
        stdout=subprocess.PIPE,
        text=True,
    ) as writer:
        try:
            assert writer.stdout is not None and writer.stdout.readline() == "ready\n"
            stderr = slow.run(
                "sync", "--limit", "n1", exit_code=3, env=scribbled(slow, "data/state")
            ).stderr
        finally:
            writer.kill()
    assert "chang" in stderr and "next: " in stderr, stderr
