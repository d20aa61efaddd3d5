"""Processes of a lab that are born into namespaces, and what they say first."""

from __future__ import annotations

import os
import select
from collections.abc import Callable

import pytest

from tfdeploy.lab.boot import newborn


def test_a_pid_is_heard_before_the_first_word_whoever_is_quicker(monkeypatch: pytest.MonkeyPatch) -> None:
    fork, forks = os.fork, [0]

    def slow() -> int:
        pid = fork()
        forks[0] += 1
        if forks[0] == 2 and pid:  # who tells the pid is kept from it for a while
            select.select([], [], [], 0.2)
        return pid

    def life(say: Callable[[str], None], wait: Callable[[], None]) -> None:
        say("up")
        os._exit(0)

    monkeypatch.setattr(os, "fork", slow)
    born = newborn("one", 0, life)
    assert born.pid > 1
    assert born.hear() == "up"
    os.close(born.said)
    os.close(born.go)
