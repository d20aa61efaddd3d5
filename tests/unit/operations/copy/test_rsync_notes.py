"""Test the warnings about this machine's rsync, which are shown before any host is contacted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tfdeploy.operations.copy import push_files
from tfdeploy.operations.copy.rsync_notes import warn_of_rsync_risks
from tfdeploy.transport.rsync import confinement, flaws


@pytest.fixture(autouse=True)
def old_rsync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flaws, "describe_flaws", lambda: ("rsync 3.2.7 is old", "update it"))
    monkeypatch.setattr(
        confinement, "describe_confinement_gap", lambda: "this kernel has no Landlock"
    )
    monkeypatch.setattr(push_files, "push", lambda *_, **__: 7)


def texts(events: list[Any]) -> list[str]:
    return [event.data["text"] for event in events if event.kind == "note"]


def test_old_sending_rsync_gives_one_warning() -> None:
    events: list[Any] = []
    emit = events.append
    for name in ("n1", "n2"):
        session: Any = SimpleNamespace(host=SimpleNamespace(name=name), target=None)
        assert (
            push_files.push_files(session, "/code", [], "/w", 7, emit, lambda done, total: None)
            == 7
        )
    assert texts(events) == ["rsync 3.2.7 is old. next: update it"]


def test_receiving_rsync_gives_note_about_confinement() -> None:
    events: list[Any] = []
    warn_of_rsync_risks(events.append)
    assert [text.split(":")[0] for text in texts(events)] == [
        "rsync 3.2.7 is old. next",
        "rsync on this machine is not confined to the folder it fills",
    ]
