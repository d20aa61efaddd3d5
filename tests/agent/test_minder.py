"""What a minder does with the doctor's word."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tfdeploy.agent.health.monitor import Ailment
from tfdeploy.agent.minder import minder
from tfdeploy.agent.wire import TaskStatus


@pytest.mark.parametrize(
    ("attempt", "state", "ended"),
    [(1, "running", True), (1, "ended", False), (2, "starting", False), (2, "running", False)],
)
def test_only_the_attempt_that_was_called_stalled_is_ended(
    monkeypatch: pytest.MonkeyPatch, attempt: int, state: str, ended: bool
) -> None:
    told: list[Any] = []
    monkeypatch.setattr(minder, "tell_supervisor", lambda *words: told.append(words))
    one: Any = minder.Minder.__new__(minder.Minder)
    one.rounds = SimpleNamespace(attend=lambda *facts: None, health=lambda: {"worker:0": Ailment(1, "frozen", 0.0, True)})
    one.state = SimpleNamespace(phase="committed", marks={})
    one.ledger = SimpleNamespace(known=SimpleNamespace(abort=None), note_health=lambda health: None)
    one.part = SimpleNamespace(stall_action="restart", stop_grace_s=1.0)
    one.paths = SimpleNamespace(status=lambda task: TaskStatus("r1", task, "n1", attempt=attempt, state=state))
    one._see_the_doctor()
    assert bool(told) == ended
