"""A run from prepare to its end, on one host and on several, with real processes and nobody attached."""

from __future__ import annotations

from typing import Any, Callable

Hosts = Callable[..., Any]  # see conftest.py


def test_one_task_from_prepare_to_success(hosts: Hosts) -> None:
    cluster = hosts("n1")
    cluster.launch("r1", {"worker:0": ("n1", ["sh", "-c", "echo hello; echo oops >&2"])})
    state = cluster.wait_ended("r1")["n1"]
    status = cluster.status("r1", "worker:0")
    assert (status.state, status.outcome, status.exit_code, status.up) == ("ended", "succeeded", 0, True)
    assert (state.first_death, state.abort_reason, state.stop_requested) == (None, None, False)
    assert sorted(cluster.log("r1", "worker:0").split()) == ["hello", "oops"]
    assert cluster.alive("r1") == []
