"""Test how the minder (the process that looks after a run on a host) reacts to the results of its
monitor, which watches the health of the tasks.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tfdeploy.agent.health.monitor import Stall
from tfdeploy.agent.minder import effects, minder
from tfdeploy.agent.wire import TaskStatus


@pytest.mark.parametrize(
    ("attempt", "state", "ended"),
    [(1, "running", True), (1, "ended", False), (2, "starting", False), (2, "running", False)],
)
def test_only_the_attempt_that_was_called_stalled_is_ended(
    monkeypatch: pytest.MonkeyPatch, attempt: int, state: str, ended: bool
) -> None:
    told: list[Any] = []
    monkeypatch.setattr(effects, "tell_supervisor_to_stop", lambda *words: told.append(words))
    store = SimpleNamespace(
        known=SimpleNamespace(abort=None), record_stalled_tasks=lambda health: None
    )
    part = SimpleNamespace(stall_action="restart", stall_after_s=300.0, stop_grace_s=1.0)
    paths = SimpleNamespace(
        status=lambda task: TaskStatus(run="r1", task=task, host="n1", attempt=attempt, state=state)
    )
    one: Any = minder.Minder.__new__(minder.Minder)
    one.monitor = SimpleNamespace(
        update=lambda *facts: None, health=lambda: {"worker:0": Stall(1, "frozen", 0.0, True)}
    )
    one.state, one.store, one.part = SimpleNamespace(phase="committed", marks={}), store, part
    one.effects = effects.ActionExecutor.__new__(effects.ActionExecutor)
    one.effects._paths, one.effects._part = paths, part
    one._record_stalls_and_end_culprits()
    assert ["stall.after is 300 s" in each[2] for each in told] == [True] * ended
