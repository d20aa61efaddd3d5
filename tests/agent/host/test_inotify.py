"""Test that a watcher of folders wakes up after each change in a folder, and that it also wakes up
periodically, because the kernel may send no event.
"""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tfdeploy.agent.host import inotify

WITHIN_S = 60.0


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable the periodic wake-up for the duration of a test, so that only events wake the
    watcher.
    """
    monkeypatch.setattr(inotify, "SLICE_S", 2 * WITHIN_S)


def wait(watcher: inotify.Watcher) -> threading.Thread:
    thread = threading.Thread(target=watcher.wait, args=(threading.Event(),), daemon=True)
    thread.start()
    return thread


def ends(thread: threading.Thread) -> bool:
    thread.join(WITHIN_S)
    return not thread.is_alive()


@pytest.mark.parametrize("how", ["written", "placed", "written before it waits"])
def test_it_wakes_up_when_something_changes(tmp_path: Path, patient: None, how: str) -> None:
    log, other = tmp_path / "log", tmp_path / "other"
    log.touch()
    other.touch()
    watcher = inotify.Watcher([str(tmp_path)], inotify.WRITTEN | inotify.PLACED)
    # The first wait returns at once, because something may have changed before the watch began.
    assert ends(wait(watcher))
    thread = None if "before" in how else wait(watcher)
    if how == "placed":
        other.rename(tmp_path / "status.json")
    else:
        log.write_bytes(b"one line")
    assert ends(thread or wait(watcher))
    watcher.close()


def test_who_waits_for_what_is_placed_sleeps_through_what_is_written(
    tmp_path: Path, patient: None
) -> None:
    log = tmp_path / "log"
    log.touch()
    watcher = inotify.Watcher([str(tmp_path)], inotify.PLACED)
    assert ends(wait(watcher))
    log.write_bytes(b"one line")
    thread = wait(watcher)
    thread.join(0.2)
    assert thread.is_alive()
    (tmp_path / "new").touch()
    assert ends(thread)
    watcher.close()


def test_a_folder_that_is_not_there_is_looked_for_now_and_then(
    tmp_path: Path, patient: None
) -> None:
    watcher = inotify.Watcher([str(tmp_path / "none")], inotify.PLACED)
    assert ends(wait(watcher)) and ends(wait(watcher))
    watcher.close()
