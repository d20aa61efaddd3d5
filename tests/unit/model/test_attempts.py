"""Attempts as events tell them."""

from __future__ import annotations

from support.screens import crash_loop
from tfdeploy.model.attempts import Attempt
from tfdeploy.model.progress import RunProgress


def test_each_attempt_has_its_end_and_its_last_line() -> None:
    progress = RunProgress()
    progress.apply_all(crash_loop())
    found = progress.attempts_of("worker:3")
    assert [(each.number, each.end is not None, each.words[:9]) for each in found] == [
        (1, True, "failed: 1"),
        (2, True, "failed: 1"),
        (3, True, "failed: 1"),
        (4, False, ""),
    ]
    assert found[0].words.endswith("No such file or directory: 'data/shard-3.npz'")


def test_the_words_name_the_signal_and_the_reason() -> None:
    killed = Attempt(task="worker:0", number=1, start=1.0, end=2.0, outcome="killed", reason="oom_kill", signal=9)
    assert killed.words == "killed: 9, oom_kill"
