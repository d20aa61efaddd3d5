"""Test that the operator's machine relays the end of a run to hosts that cannot reach the host on
which the end was decided.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.agent.nearby import NearFleet
from support.agent.unpacked import write_agent_files
from support.dashboard_scenes import plan_of
from support.waiting import wait_for
from tfdeploy.agent import wire
from tfdeploy.agent.errors import VerbError
from tfdeploy.agent.run import folder
from tfdeploy.model.choices import Mode
from tfdeploy.model.events import Event
from tfdeploy.model.job import Job
from tfdeploy.model.plan import Plan
from tfdeploy.model.status.run_status import find_informed_and_uninformed_hosts
from tfdeploy.operations import launch as launching
from tfdeploy.operations.launch import LaunchRequest, launch
from tfdeploy.operations.launching import prepare_blobs
from tfdeploy.operations.launching.certificates import make_certificates
from tfdeploy.operations.status import status
from tfdeploy.operations.watch import relay
from tfdeploy.operations.watch.relay import EndRelay
from tfdeploy.operations.watch.watch import Watch
from tfdeploy.store.runs import RunStore

PROGRAM = """
import os, time
while os.environ["TFDEPLOY_TASK_ROLE"] == "ps" or not os.path.exists("go"):
    time.sleep(0.05)
raise SystemExit(int(open("go").read()))
"""


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NearFleet]:
    """Return two hosts whose minders (the processes that look after the run) cannot connect to each
    other, because each refuses the certificate of the other.

    The ps runs on n1. The worker, whose end decides the end of the run, runs on n2.
    """
    agent_dir = str(tmp_path / "agent")
    write_agent_files(agent_dir)
    monkeypatch.setattr(folder, "AGENT_DIR", agent_dir)
    monkeypatch.setattr(relay, "WAIT_S", 1.0)
    each_its_own = {host: make_certificates("r1", ["n1", "n2"])[host] for host in ("n1", "n2")}
    monkeypatch.setattr(prepare_blobs, "make_certificates", lambda run, hosts: each_its_own)
    # Without this, the launch would check the connections between the hosts and refuse to start.
    monkeypatch.setattr(launching, "check_links", lambda fleet, plan: None)
    near_fleet = NearFleet(tmp_path, agent_dir, "n1", "n2")
    yield near_fleet
    near_fleet.end_all()


def launch_run(fleet: NearFleet, root: Path, mode: Mode = "async", restart_max: int = 0) -> Plan:
    (root / "code").mkdir()
    (root / "code" / "train.py").write_text(PROGRAM)
    job = Job(
        name="cut",
        mode=mode,
        command=("python", "train.py"),
        code=str(root / "code"),
        flags="none",
        ready_after_s=0.1,
        restart_max=restart_max,
        finish_grace_s=0.2,
        stop_grace_s=1.0,
    )
    asked = LaunchRequest(
        inventory=fleet.inventory,
        job=job,
        run="r1",
        now=1.0,
        operator="me@here",
        holder={"user": "me", "pid": 1},
    )
    return launch(asked, fleet, RunStore(root / "store"), lambda event: None)


def follow(fleet: NearFleet, plan: Plan) -> tuple[str, list[str]]:
    """Follow the run until it has ended. Return its state and the notes for the operator."""
    events: list[Event] = []
    watch = Watch(fleet, plan, events.append)
    end_relay = EndRelay(watch)

    def is_over() -> bool:
        watch.poll()
        end_relay.tell_hosts_if_due()
        return watch.view().is_final

    wait_for(is_over, 20, "the run has ended on all hosts")
    notes = [event.data["text"] for event in events if event.kind == "note"]
    return watch.view().state, notes


@pytest.mark.fault("32 the deciding host is cut from the others, not from us")
@pytest.mark.parametrize(("code", "state"), [(0, "succeeded"), (3, "failed")])
def test_follower_relays_end_of_run(
    fleet: NearFleet, tmp_path: Path, code: int, state: str
) -> None:
    plan = launch_run(fleet, tmp_path)
    (tmp_path / "go").write_text(str(code))
    # The file is renamed into place, so that the program never finds it without its content.
    (tmp_path / "go").rename(Path(fleet.paths("n2", "cut", "r1").cwd, "go"))
    wait_for(
        lambda: fleet.paths("n2", "cut", "r1").state().phase == "ended",
        20,
        "the worker's host has ended",
    )
    run_status = status(fleet, plan)
    assert run_status.uninformed == ("n2", ("n1",)) and run_status.view.state == "running"
    end, notes = follow(fleet, plan)
    assert end == state
    assert notes == [
        "n1 has not heard from n2 that the run is over; this machine reports the end of the run"
    ]
    assert fleet.alive("r1", "cut") == {} and status(fleet, plan).uninformed is None


def test_follower_relays_success_that_each_host_knows_only_of_itself(
    fleet: NearFleet, tmp_path: Path
) -> None:
    fleet.inventory.roles.clear()
    # While the gang may restart, no host ends the run on its own.
    plan = launch_run(fleet, tmp_path, "plain", restart_max=1)
    assert status(fleet, plan).uninformed is None
    (tmp_path / "go").write_text("0")
    hosts = [fleet.paths(host, "cut", "r1") for host in ("n1", "n2")]
    wait_for(
        lambda: all(paths.state().phase == "committed" for paths in hosts),
        20,
        "both hosts have heard of the commit",
    )
    for paths in hosts:
        os.link(tmp_path / "go", Path(paths.cwd, "go"))
    end, notes = follow(fleet, plan)
    assert end == "succeeded"
    assert notes == [
        "n[1-2] have not heard that all deciding tasks have succeeded; this machine reports the "
        "end of the run"
    ]
    assert fleet.alive("r1", "cut") == {} and status(fleet, plan).uninformed is None


def test_nonsense_is_not_relayed(fleet: NearFleet, tmp_path: Path) -> None:
    launch_run(fleet, tmp_path)
    assert fleet.call("n1", "run.known", run="r1", job="cut") == {"known": None}
    for nonsense in (
        None,
        3,
        "",
        "[",
        "[]",
        '{"abort":{"kind":"abort"}}',
        '{"decided":NaN}',
        "[" * 100000,
        "\u8bad",
    ):
        with pytest.raises(VerbError) as refused:
            fleet.call("n1", "run.tell", run="r1", job="cut", known=nonsense)
        assert refused.value.code == "bad_argument"
    folder.RunPaths.wake_minder(fleet.paths("n1", "cut", "r1"))
    assert set(fleet.alive("r1", "cut")) == {"n1", "n2"}


def state(host: str, phase: str, **given: Any) -> wire.HostRunState:
    return wire.HostRunState(run="r1", job="j", host=host, phase=phase, **given)


SUCCESS: Any = {"outcome": "succeeded", "time": 1.0, "up": True, "round": 1}


def workers_ended(first: Any, second: Any) -> list[wire.HostRunState]:
    """Return the states of two hosts, each with the ending of its own deciding task, or None."""
    return [
        state("n2", "committed", ended_tasks={"worker:0": first} if first else {}),
        state("n3", "committed", ended_tasks={"worker:1": second} if second else {}),
    ]


@pytest.mark.parametrize(
    ("states", "uninformed_hosts"),
    [
        (workers_ended(SUCCESS, {**SUCCESS, "time": 2.0}), (2.0, ("n2", "n3"))),
        (workers_ended(SUCCESS, None), None),
        (workers_ended(SUCCESS, {**SUCCESS, "outcome": "failed"}), None),
        # The worker exited with code 0 before it was up.
        (workers_ended(SUCCESS, {**SUCCESS, "up": False}), None),
        # The gang has restarted since n2 heard of it last.
        (workers_ended(SUCCESS, {**SUCCESS, "round": 2}), None),
        (
            [
                *workers_ended(SUCCESS, SUCCESS),
                state("n1", "committed", round={"n": 2, "time": 1.0, "task": "worker:0"}),
            ],
            None,
        ),
        (workers_ended(SUCCESS, SUCCESS)[:1], None),
        # The launch is not complete on n3.
        (
            [
                workers_ended(SUCCESS, None)[0],
                state("n3", "started", ended_tasks={"worker:1": SUCCESS}),
            ],
            None,
        ),
        ([state("n1", "committed"), state("n2", "committed")], None),
        # n2 has ended its own tasks, but the end of the run is not decided. So nobody has to tell
        # n1 that the run is over.
        ([state("n1", "committed"), state("n2", "ended")], None),
        ([state("n1", "committed"), state("n2", "ended", marks={"decided": 1.0})], ("n2", ("n1",))),
        ([state("n1", "committed"), state("n2", "ending", abort_reason="x")], ("n2", ("n1",))),
        ([state("n1", "committed"), state("n2", "ending", stop_requested=True)], ("n2", ("n1",))),
        # n2 has not begun to end the run, so the hosts may still inform each other of the stop.
        ([state("n1", "committed"), state("n2", "committed", stop_requested=True)], None),
        (
            [
                state("n1", "committed", marks={"decided": 1.0}),
                state("n2", "ended", marks={"decided": 1.0}),
            ],
            None,
        ),
    ],
)
def test_hosts_that_do_not_know_end_of_run(
    states: list[wire.HostRunState], uninformed_hosts: Any
) -> None:
    plan = plan_of(2)
    plan = replace(
        plan, tasks=tuple(replace(each, deciding=each.role == "worker") for each in plan.tasks)
    )
    assert (
        find_informed_and_uninformed_hosts({state.host: state for state in states}, plan)
        == uninformed_hosts
    )
