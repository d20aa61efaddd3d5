"""Test what tfdeploy still does when a signal ends a launch or a sync."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path

import pytest

from support.waiting import wait_for

# A made-up verb for these tests. Like `launch`, the verb reports progress, and its effects can be
# undone.
VERB = """
import sys, time
from pathlib import Path
from tfdeploy.cli import command, interrupts, main
from tfdeploy.model.events import Event
from tfdeploy.ui.progress import SyncView

def verb(words):
    here = Path(sys.argv[1])
    with SyncView() as emit, interrupts.interrupt_on_first_signal():
        try:
            (here / "up").touch()
            while True:
                time.sleep(0.01)
        except KeyboardInterrupt:
            for _ in range(3):
                emit(Event("note", 1.0, data={"level": "warning", "text": "rolling back"}))
            (here / "back").touch()
            while not (here / "go").exists():
                time.sleep(0.01)
            (here / "done").touch()
            if "late" not in sys.argv:
                raise
    while True:  # it follows what it has begun
        time.sleep(0.01)

if "nohup" in sys.argv:
    import signal
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
command.run_command = verb
sys.exit(main.main([]))
"""
Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    def begin(
        *args: str, stderr: int = subprocess.DEVNULL, **options: object
    ) -> subprocess.Popen[bytes]:
        argv = [sys.executable, "-c", VERB, str(tmp_path), *args]
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=stderr, stderr=stderr, **options
        )  # type: ignore[call-overload]
        wait_for((tmp_path / "up").exists, 20, "the verb has started")
        return process  # type: ignore[no-any-return]

    return begin


@pytest.mark.parametrize(
    ("number", "ends_in"), [(signal.SIGINT, 130), (signal.SIGTERM, -15), (signal.SIGHUP, -1)]
)
def test_signal_too_late_for_rollback_still_ends_verb(
    start: Start, tmp_path: Path, number: int, ends_in: int
) -> None:
    (tmp_path / "go").touch()
    process = start("late")
    process.send_signal(number)
    try:
        assert process.wait(120) == ends_in
    finally:
        process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signal_rolls_back_and_determines_exit_status(
    start: Start, tmp_path: Path, number: int
) -> None:
    process = start()
    process.send_signal(number)
    wait_for((tmp_path / "back").exists, 20, "it rolls back")
    # Signals may arrive several times: from the shell, from the kernel and from the terminal.
    for repeated in (signal.SIGHUP, number, signal.SIGHUP):
        process.send_signal(repeated)
    (tmp_path / "go").touch()
    assert process.wait(120) == -number
    assert (tmp_path / "done").exists()


def test_ctrl_c_exits_with_130(start: Start, tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    process = start()
    process.send_signal(signal.SIGINT)
    assert process.wait(120) == 130


def test_third_signal_leaves_rollback_to_hosts(start: Start, tmp_path: Path) -> None:
    process = start()
    process.send_signal(signal.SIGTERM)
    wait_for((tmp_path / "back").exists, 20, "it rolls back")
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGINT)
    wait_for(
        lambda: process.poll() is not None or process.send_signal(signal.SIGINT), 20, "it ends"
    )
    assert not (tmp_path / "done").exists()


def test_signal_ignored_by_nohup_stays_ignored(start: Start, tmp_path: Path) -> None:
    process = start("nohup")
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGTERM)
    (tmp_path / "go").touch()
    assert process.wait(120) == -signal.SIGTERM


@pytest.mark.fault("51 the terminal is closed during a launch")
def test_closed_terminal_rolls_back_and_ends_by_sighup(start: Start, tmp_path: Path) -> None:
    master, terminal = os.openpty()
    process = start(
        stderr=terminal,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(terminal, termios.TIOCSCTTY, 0),
    )
    os.close(terminal)
    (tmp_path / "go").touch()
    os.close(master)
    assert process.wait(120) == -signal.SIGHUP
    assert (tmp_path / "done").exists()
