"""Test a host that is cut off repeatedly while a client follows its run: the client reports the
cuts, and no line is lost or repeated.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from support.lab.commandline import Tfdeploy
from support.lab.jobs import write_job
from support.lab.remains import assert_nothing_left
from support.waiting import wait_for
from tfdeploy.lab import Lab

pytestmark = [pytest.mark.isolated, pytest.mark.long]


@pytest.fixture
def operator(few_hosts: Lab, tfdeploy: Callable[[Lab], Tfdeploy]) -> Any:
    yield tfdeploy(few_hosts)
    for host in ("n2", "n3"):
        few_hosts.heal(host)


@pytest.mark.fault("35 hosts are cut off again and again")
def test_cuts_are_shown_and_cost_no_byte(operator: Tfdeploy) -> None:
    write_job(operator, "cuts", "quick.py", "--steps=1000000")
    path = operator.home / "events"
    watching = operator.start(
        "launch", "--wait", "--name", "cuts-1", "--events", str(path), stdout=subprocess.DEVNULL
    )

    def events(kind: str, host: str) -> list[dict[str, Any]]:
        text = path.read_text() if path.exists() else ""
        all_events = [json.loads(line) for line in text.split("\n")[:-1]]
        return [event for event in all_events if event["kind"] == kind and event["host"] == host]

    def last_host_state(host: str) -> list[str]:
        return [event["data"]["state"] for event in events("host", host)][-1:]

    wait_for(lambda: events("line", "n3") and events("line", "n2"), 60, "the run prints")
    for host, shown in (("n3", False), ("n3", True), ("n2", True)):
        operator.lab.cut(host)
        if shown:
            wait_for(
                lambda host=host: last_host_state(host) == ["unreachable"],
                60,
                f"{host} is shown as unreachable",
            )
            rows = operator.json("status", "cuts-1")["tasks"]
            assert [row["task"] for row in rows if row["health"] == "unreachable"] == [
                f"worker:{int(host[1]) - 2}"
            ]
        operator.lab.heal(host)
        before = len(events("line", host))
        wait_for(
            lambda host=host, before=before: len(events("line", host)) > before,
            60,
            f"lines of {host} again",
        )
        if shown:
            wait_for(
                lambda host=host: last_host_state(host) == ["connected"],
                10,
                f"{host} is shown as connected",
            )
    operator.run("stop", "cuts-1", exit_code=0)
    watching.wait(timeout=120)
    for host, task in (("n2", "worker:0"), ("n3", "worker:1")):
        followed = "".join(event["data"]["line"] + "\n" for event in events("line", host))
        assert (
            followed
            == operator.run("logs", "cuts-1", "--task", task, "--output", "raw", exit_code=0).stdout
        )
    assert_nothing_left(operator, "cuts-1", "cuts")
