"""Test how events are written to a file and replayed from it. Also test writing them to a FIFO: the
writer waits until the FIFO is read, so a test can act between two steps of a launch.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from support.waiting import wait_for
from tfdeploy.errors import UsageError
from tfdeploy.model.events import Event, event_from_json
from tfdeploy.ui.jsonl import EventsFile, unread_bytes

NOTE = Event(kind="note", time=1.0, data={"level": "info", "text": "x" * 10})


def until(condition: Callable[[], bool], description: str) -> None:
    wait_for(condition, 10, description, poll_s=0.002)


@pytest.fixture
def fifo(tmp_path: Path) -> Iterator[tuple[EventsFile, int]]:
    path = tmp_path / "events"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    file = EventsFile(path)
    os.set_blocking(reader, True)
    yield file, reader
    try:
        os.close(reader)
    except OSError:
        pass
    file.close()


def test_events_are_appended_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    odd = Event(
        kind="line",
        time=2.0,
        run="r",
        host="n1",
        task="worker:0",
        attempt=1,
        data={"stream": "out", "line": "a\udcff\x00\u2028\n", "offset": 7},
    )
    for event in (NOTE, odd):
        with closing(EventsFile(path)) as file:
            file(event)
            assert path.read_bytes().endswith(b"\n")
    first, second = (event_from_json(line) for line in path.read_bytes().split(b"\n")[:-1])
    assert first == NOTE
    assert second.data["line"] == "a\ufffd\x00\u2028\n"


def test_writer_waits_until_newline_is_read(fifo: tuple[EventsFile, int]) -> None:
    file, reader = fifo
    after: list[str] = []

    def emit() -> None:
        file(NOTE)
        after.append("went on")

    thread = threading.Thread(daemon=True, target=emit)
    thread.start()
    text = b""
    while not text.endswith(b"}}"):
        text += os.read(reader, 1)
        assert not after
    until(lambda: unread_bytes(reader) == 1, "the newline is in the FIFO")
    thread.join(0.05)
    assert not after, "the newline is unread"
    assert os.read(reader, 1) == b"\n"
    thread.join(120)
    assert after == ["went on"]
    assert event_from_json(text) == NOTE


def test_line_longer_than_pipe_capacity(fifo: tuple[EventsFile, int]) -> None:
    file, reader = fifo
    thread = threading.Thread(
        daemon=True, target=file, args=(Event(kind="note", time=1.0, data={"text": "y" * 300_000}),)
    )
    thread.start()
    text = b""
    while not text.endswith(b"\n"):
        text += os.read(reader, 65536)
    thread.join(120)
    assert not thread.is_alive()
    assert len(text) > 300_000


def test_closed_fifo_ends_writing_but_not_run(fifo: tuple[EventsFile, int]) -> None:
    file, reader = fifo
    thread = threading.Thread(daemon=True, target=file, args=(NOTE,))
    thread.start()
    until(lambda: unread_bytes(reader) > 0, "the line is in the FIFO")
    os.close(reader)
    thread.join(120)
    assert not thread.is_alive()
    file(NOTE)
    file(NOTE)


def test_unwritable_path_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        EventsFile(tmp_path / "no" / "events")
    assert caught.value.where == str(tmp_path / "no" / "events")
