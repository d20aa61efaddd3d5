"""Test the dashboard and the progress bars of a sync. Each runs in a separate process on a real
terminal (a pty).

The tests cover keys, the end of the process, signals and resizing.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.pseudo_terminal import ALT_OFF, Terminal, plain, restored

ROOT = Path(__file__).parents[4]
PROGRAM = """
import sys, threading
sys.path[:0] = [{root!r}, {root!r} + "/scripts", {here!r}]
from support.dashboard_scenes import *
from support.recorded import replay_to_view
from tfdeploy.ui.dashboard.dashboard import Dashboard
dashboard = Dashboard(command=lambda words: print('did:', *words))
go_on = threading.Event()
def feed():
    for part in {parts}:
        for one in part:
            replay_to_view(dashboard, one)
threading.Thread(target=feed, daemon=True).start()
try:
    print("how:", dashboard.run())
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.fixture
def start(request: pytest.FixtureRequest) -> Iterator[object]:
    opened: list[Terminal] = []

    def begin(
        parts: str = "[syncing(), training()]", program: str = PROGRAM, **options: int
    ) -> Terminal:
        text = program.format(root=str(ROOT), here=str(ROOT / "tests"), parts=parts)
        opened.append(
            Terminal(
                [sys.executable, "-c", text], {**os.environ, "PYTHONPATH": str(ROOT)}, **options
            )
        )
        return opened[-1]

    yield begin
    for terminal in opened:
        terminal.close()


def test_q_quits_and_suggests_commands(start) -> None:  # type: ignore[no-untyped-def]
    terminal = start()
    terminal.until("WARNING: something")
    terminal.type(b"q")
    assert terminal.finish() == 0
    assert restored(terminal)
    words = plain(terminal.output[terminal.output.rfind(ALT_OFF) :]).decode()
    assert "run digits-20261121-101500-3fa1 running" in words
    assert "next: `tfdeploy logs -f digits-20261121-101500-3fa1`" in words
    assert "how: left" in words


def test_dashboard_ends_with_run_and_names_cause(start) -> None:  # type: ignore[no-untyped-def]
    terminal = start("[syncing(), training(), dying(), ended()]")
    assert terminal.finish() == 0
    assert restored(terminal)
    words = plain(terminal.output[terminal.output.rfind(ALT_OFF) :]).decode().replace("\r", "")
    assert "cause: worker:1 on n3 failed with exit code 1\n  | step" in words
    assert "  | ValueError: bad shard digits-003\n" in words
    assert "how: ended" in words


def test_keys_for_choosing_following_and_filtering(start) -> None:  # type: ignore[no-untyped-def]
    terminal = start()
    terminal.until("WARNING: something")
    terminal.type(b"\x1b[Bf")
    terminal.until("log of ps:0")
    terminal.type(b"\x1b[B")
    terminal.until("log of worker:0")
    terminal.type(b"/1393")
    terminal.until("with '1393'")
    terminal.type(b"\r ")
    terminal.until("paused")
    terminal.type(b"\x1b")
    terminal.until("worker:2@n4 | step 1393")
    terminal.type(b"q")
    assert terminal.finish() == 0


@pytest.mark.parametrize(
    ("key", "question", "verb"),
    [
        (
            b"x",
            "stop digits-20261121-101500-3fa1 on all its hosts?",
            "stop digits-20261121-101500-3fa1 --yes",
        ),
        (b"o", "open a shell on n1?", "ssh n1"),
        (
            b"d",
            "download the logs of digits-20261121-101500-3fa1 to this machine?",
            "fetch digits-20261121-101500-3fa1 --logs",
        ),
    ],
)
def test_commands_need_confirmation(start, key: bytes, question: str, verb: str) -> None:  # type: ignore[no-untyped-def]
    terminal = start()
    terminal.until("WARNING: something")
    terminal.type(b"\x1b[B")
    for answer in (b"n", b"\r", b"\x1b", b"y"):
        terminal.type(key)
        assert terminal.shows(f"{question} y yes, any other key no")[-1].startswith(question)
        assert b"did:" not in terminal.output
        terminal.type(answer)
    terminal.until("? help" if key == b"o" else "-- Enter goes back to the dashboard --")
    assert f"did: {verb}\r\n".encode() in terminal.output
    terminal.type(b"\r" if key != b"o" else b"")
    terminal.type(key)
    terminal.shows(question)
    # Ctrl-C ends the dashboard, even while it asks a question.
    terminal.type(b"\x03")
    assert terminal.finish() == 0 and restored(terminal)
    assert terminal.output.count(b"did:") == 1


@pytest.mark.fault("47 a terminal that changes its size")
def test_resize(start) -> None:  # type: ignore[no-untyped-def]
    terminal = start()
    terminal.until("WARNING: something")
    terminal.resize(20, 6)
    terminal.until("q leave   ? help")
    terminal.resize(120, 30)
    terminal.until("s sort   e fold   w wrap")
    terminal.type(b"q")
    assert terminal.finish() == 0
    assert restored(terminal)


@pytest.mark.fault("51 SIGTERM and SIGHUP in the dashboard")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signals_restore_terminal_first(start, number: signal.Signals) -> None:  # type: ignore[no-untyped-def]
    terminal = start()
    terminal.until("WARNING: something")
    terminal.process.send_signal(number)
    assert terminal.finish() == -number
    assert restored(terminal)


@pytest.mark.parametrize(
    ("parts", "last", "message"),
    [
        ("[syncing()]", "worker:6", "interrupted"),
        ("[syncing(), training()]", "WARNING: something", "how: left"),
    ],
)
def test_ctrl_c_leaves_committed_run_and_interrupts_launch(  # type: ignore[no-untyped-def]
    start, parts: str, last: str, message: str
) -> None:
    terminal = start(parts)
    terminal.until(last)
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.finish() == 0
    assert restored(terminal)
    # The whole output is searched, because the last frame may have cut off the text.
    assert message in plain(terminal.output).decode(errors="replace")


def test_exception_restores_terminal(start) -> None:  # type: ignore[no-untyped-def]
    terminal = start("[[event('transfer', 1.0, 'n1', what='code', sent_bytes='x')]]")
    assert terminal.finish() == 1
    assert restored(terminal)
    assert b"Error" in terminal.output


def test_foreign_bytes_never_reach_terminal(start) -> None:  # type: ignore[no-untyped-def]
    terminal = start(
        "[training(), [line(1050.0, 'worker:0', chr(27) + ']0;owned' + chr(7) + chr(0x9b) + '2J' "
        "+ chr(0x202e) + 'evil')]]"
    )
    terminal.until("evil")
    terminal.type(b"q")
    terminal.finish()
    text = terminal.output.decode()
    assert "\x1b]" not in text
    assert not set(text) & {"\x07", "\x9b", "\u202e", "\x00"}


SYNC_PROGRAM = """
import sys
sys.path[:0] = [{root!r}, {root!r} + "/scripts", {here!r}]
from support.dashboard_scenes import *
from tfdeploy.ui.progress import SyncView
with SyncView() as emit:
    for one in {parts}:
        emit(one)
    emit(event("note", 1003.5, level="warning", text="half way"))
    if sys.stderr.isatty():
        sys.stdin.readline()
print("over")
"""


@pytest.mark.parametrize("columns", [22, 100])
def test_progress_bars_of_sync(start, columns: int) -> None:  # type: ignore[no-untyped-def]
    terminal = start("syncing()", SYNC_PROGRAM, columns=columns)
    terminal.until(
        "60 MB of 300 MB, 30 MB/s, 8.0 s left  0 of 8 hosts done"
        if columns == 100
        else "all           20 % 6"
    )
    terminal.type(b"\n")
    assert terminal.finish() == 0
    text = plain(terminal.output).decode()
    assert "warning: half way" in text
    assert ("n3           #####................... 12 MB of 60 MB, 6.0 MB/s" in text) == (
        columns == 100
    )


def test_no_progress_bars_without_terminal() -> None:
    program = SYNC_PROGRAM.format(
        root=str(ROOT),
        here=str(ROOT / "tests"),
        parts="[one for one in (*syncing(), *training()) if one.kind != 'line']",
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=True,
    )
    assert "[n1] code 60 MB sent\n" in done.stderr
    assert "\x1b" not in done.stderr
    assert done.stdout == "over\n"


def test_picture_from_recorded_events(tmp_path: Path) -> None:
    from dashboard_svg import main
    from support.dashboard_scenes import dying, syncing, training
    from tfdeploy.model.events import event_to_json

    recorded = tmp_path / "events.jsonl"
    recorded.write_bytes(
        b"".join(
            event_to_json(recorded_event) + b"\n"
            for part in (syncing(), training(), dying())
            for recorded_event in part
        )
    )
    pictures = []
    for name, upto in (("one.svg", "31"), ("two.svg", "31"), ("all.svg", "1000")):
        assert main([str(recorded), str(tmp_path / name), "--width", "100", "--upto", upto]) == 0
        pictures.append((tmp_path / name).read_text(encoding="utf-8"))
    assert pictures[0] == pictures[1]
    assert "ValueError" not in pictures[0]
    assert "ValueError" in pictures[2]
    assert main([str(tmp_path / "none"), str(tmp_path / "x.svg")]) == 2
