"""Test a host on which the minder (the process that looks after a run) and all supervisors (the
parent processes of tasks) are killed together. The other hosts report this. They accept the host
again if it comes back, and give it up if it does not.
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from support.agent.cluster import Cluster, NewCluster
from tfdeploy.agent import wire
from tfdeploy.agent.call import Call
from tfdeploy.agent.host import processes
from tfdeploy.agent.mesh import shared_state
from tfdeploy.agent.mesh.shared_state import KnownRunState
from tfdeploy.agent.minder import unminded
from tfdeploy.agent.minder.actions import (
    AbortRun,
    HostRunView,
    LocalTask,
    ReportMinderChange,
    ReportTasksLost,
)
from tfdeploy.agent.minder.decide import decide
from tfdeploy.agent.run import task_processes
from tfdeploy.agent.serve.run import minder_start
from tfdeploy.agent.serve.run import status as run_status
from tfdeploy.agent.wire import HostPart, Peer, TaskSpec, TaskStatus

FOREVER = ["sh", "-c", "echo attempt $TFDEPLOY_TASK_ATTEMPT; exec sleep 1000"]
PEERS = [
    Peer(task="ps:0", role="ps", host="n1"),
    Peer(task="worker:0", role="worker", host="n2", deciding=True),
    Peer(task="worker:1", role="worker", host="n3", on_death="alone"),
]
PART = HostPart(
    run="r1",
    job="j",
    mode="async",
    host="n1",
    plan_digest="d",
    release="c",
    tasks=[TaskSpec(task="ps:0", role="ps", index=0, argv=["x"], env={})],
    peers=PEERS,
    restart_max=3,
    restart_wait_s=3600.0,
)
AWAY = KnownRunState(committed=True, unminded={"n3": (1, 50.0)})
DONE = {"outcome": "succeeded", "time": 60.0, "up": True}
DIED = {"outcome": "killed", "time": 40.0, "attempt": 2, "final": False}


def view(
    known: KnownRunState, phase: str = "committed", marks: Any = None, **given: Any
) -> HostRunView:
    """Return what host n1 knows when it decides what to do. The clock of n1 shows 5,000 s."""
    own = {
        "ps:0": LocalTask(
            status=TaskStatus(run="r1", task="ps:0", host="n1", state="running"), is_supervised=True
        )
    }
    return HostRunView(
        part=PART,
        phase=phase,
        known=known,
        local_tasks=own,
        now=5000.0,
        time_by_event=marks or {},
        orders={},
        **given,
    )


KNOWN = KnownRunState(committed=True)
CASES = {
    "refused for less than a minute": (view(KNOWN, refusal_s_by_host={"n3": 59.0}), []),
    "refused for a minute": (
        view(KNOWN, refusal_s_by_host={"n3": 61.0}),
        [ReportMinderChange("n3", 1, 61.0)],
    ),
    "silent for hours": (view(KNOWN, silence_s_by_host={"n3": 9999.0}), []),
    "two hosts": (
        view(KNOWN, refusal_s_by_host={"n2": 61.0, "n3": 61.0}),
        [ReportMinderChange("n2", 1, 61.0), ReportMinderChange("n3", 1, 61.0)],
    ),
    "all of it has ended there": (
        view(KNOWN.join(KnownRunState(ended={"worker:1": DONE})), refusal_s_by_host={"n3": 61.0}),
        [],
    ),
    "it would start again there": (
        view(KNOWN.join(KnownRunState(ended={"worker:1": DIED})), refusal_s_by_host={"n3": 61.0}),
        [ReportMinderChange("n3", 1, 61.0)],
    ),
    "decided": (
        view(KNOWN.join(KnownRunState(ended={"worker:0": DONE})), refusal_s_by_host={"n3": 61.0}),
        [],
    ),
    "not committed": (view(KnownRunState(), "started", refusal_s_by_host={"n3": 61.0}), []),
    "said already": (view(AWAY, refusal_s_by_host={"n3": 99.0}, marks={"unminded n3": 4900.0}), []),
    "for as long as is waited": (
        view(AWAY, marks={"unminded n3": 1400.0}),
        [ReportTasksLost("n3")],
    ),
    "silent since": (
        view(AWAY, silence_s_by_host={"n3": 3700.0}, marks={"unminded n3": 1400.0}),
        [ReportTasksLost("n3")],
    ),
    "it is this host, which is minded": (
        view(KnownRunState(committed=True, unminded={"n1": (3, 50.0)})),
        [ReportMinderChange("n1", 4)],
    ),
    "it came back": (view(AWAY.join(KnownRunState(unminded={"n3": (2, 90.0)}))), []),
    "it came back and went away": (
        view(AWAY.join(KnownRunState(unminded={"n3": (2, 90.0)})), refusal_s_by_host={"n3": 70.0}),
        [ReportMinderChange("n3", 3, 70.0)],
    ),
    "nobody else was heard of yet": (
        view(AWAY, rejoining=True, marks={"unminded n3": 1400.0, "back": 4999.0}),
        [],
    ),
}


@pytest.mark.fault("42 minder and supervisors at once")
@pytest.mark.parametrize(("seen", "actions"), CASES.values(), ids=CASES)
def test_what_is_said_of_hosts_where_nobody_minds_the_run(
    seen: HostRunView, actions: list[Any]
) -> None:
    assert [
        each
        for each in decide(seen)
        if isinstance(each, (ReportMinderChange, ReportTasksLost, AbortRun))
    ] == actions


def test_what_is_given_up_fails_the_run_in_words() -> None:
    known = AWAY.join(KnownRunState(ended=unminded.make_lost_endings(PART, AWAY, "n3")))
    (abort,) = decide(view(known))
    words = (
        "worker:1 on n3 lost: no process manages the task, and its host has refused connections "
        "to the run's port for all of restart.wait (1 h)"
    )
    assert abort == AbortRun("failed", words)
    # The time of the loss is the time at which the host disappeared. So the loss comes before the
    # deaths of other tasks that it caused, and is reported as the first death.
    assert known.ended["worker:1"]["time"] == 50.0
    assert shared_state.from_json(json.loads(json.dumps(known.as_json())), PART) == known


def test_after_what_a_host_that_lies_has_counted_the_others_still_believe_us() -> None:
    most = shared_state.MAX_ROUND
    lie = {"n1": (most - 1, 50.0), "n2": (most, 50.0), "n3": (most - 1, 50.0)}
    known = KnownRunState(
        committed=True, unminded=lie, ended={"worker:1": {**DIED, "attempt": most}}
    )
    actions = decide(view(known, refusal_s_by_host={"n2": 99.0}, marks={"unminded n3": 1000.0}))
    # The number of reports about n2 has reached its maximum, so there is no further report about
    # n2.
    assert actions == [ReportMinderChange("n1", most), ReportTasksLost("n3")]
    for action in actions:
        assert isinstance(action, (ReportMinderChange, ReportTasksLost))
        known = unminded.join_reported_facts(PART, known, action, 100.0)
    assert known.ended["worker:1"]["outcome"] == "lost"
    assert shared_state.from_json(json.loads(json.dumps(known.as_json())), PART) == known


def test_a_member_of_the_gang_is_given_up_though_it_had_done_its_part() -> None:
    peers = [
        Peer(
            task="worker:0",
            role="worker",
            host="n1",
            deciding=True,
            serves=False,
            on_death="gang",
            gang=True,
        ),
        Peer(
            task="worker:1",
            role="worker",
            host="n3",
            deciding=True,
            serves=False,
            on_death="gang",
            gang=True,
        ),
    ]
    part = wire.replace(PART, peers=peers)
    round_two = {"n": 2, "time": 70.0, "task": "worker:0", "count": 1, "quick": 1, "delay_s": 1.0}
    known = AWAY.join(KnownRunState(ended={"worker:1": dict(DONE, attempt=3)}))
    assert unminded.make_lost_endings(part, known, "n3") == {}
    again = known.join(KnownRunState(round=round_two))
    assert unminded.make_lost_endings(part, again, "n3")["worker:1"]["attempt"] == 4


# --- real processes


QUICK: dict[str, Any] = {"unminded_after_s": 1.5, "restart_backoff_s": [0.1, 0.4]}


def kill_all(cluster: Cluster, run: str, host: str) -> None:
    """Kill the minder, the supervisors and the tasks of the run on one host, all at the same
    moment.
    """
    paths = cluster.hosts[host].paths(run)
    tasks = [spec.task for spec in paths.part().tasks]
    ours = {
        pid
        for pid in processes.all_processes()
        if os.fsencode(paths.host_dir) in processes.read_command_line(pid)
    }
    everyone = [
        who
        for pid in ours | task_processes.find_task_processes(paths, tasks)[0]
        if (who := processes.read_identity(pid))
    ]
    # All processes are stopped with SIGSTOP before they are killed, so that none of them can react
    # to the end of another one.
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for who in everyone:
            processes.send_signal(who, number)
    cluster.wait_until(lambda: not any(map(processes.is_alive, everyone)))


def start(cluster: Cluster, kind: str, **fields: Any) -> dict[str, Any]:
    tasks = {f"worker:{n}": (f"n{n + 1}", FOREVER) for n in range(len(cluster.hosts))}
    recovery = dict.fromkeys(tasks, (kind, kind == "gang"))
    cluster.launch("r1", tasks, recovery=recovery, restart_max=3, **{**QUICK, **fields})
    for task in tasks:
        cluster.wait_state("r1", task, "running")
    return tasks


@pytest.mark.fault("42 minder and supervisors at once, nobody attached")
def test_the_others_know_that_nobody_minds_it_and_that_somebody_does_again(
    hosts: NewCluster,
) -> None:
    cluster = hosts("n1", "n2")
    start(cluster, "alone")
    kill_all(cluster, "r1", "n2")
    cluster.wait_until(lambda: "n2" in cluster.state("r1", "n1").unminded, 30.0)
    paths = cluster.hosts["n2"].paths("r1")
    (row,) = run_status.describe_run(paths)["tasks"]
    assert (row["state"], row["outcome"], row["reason"]) == (
        "lost",
        "lost",
        "no process manages the task: its minder and its supervisor died",
    )
    assert (
        cluster.state("r1", "n1").abort_reason is None
        and cluster.status("r1", "worker:0").state == "running"
    )
    minder_start.resume_run(Call(cluster.hosts["n2"].context, {"run": "r1", "job": cluster.job}))
    cluster.wait_until(lambda: not cluster.state("r1", "n1").unminded, 30.0)
    status = cluster.wait_state("r1", "worker:1", "running")
    cluster.wait_until(lambda: cluster.status("r1", "worker:1").attempt == 2, 30.0)
    assert (
        status
        and "minded again"
        in (Path(cluster.hosts["n1"].paths("r1").host_dir) / "journal").read_text()
    )


@pytest.mark.parametrize("kind", ["alone", "gang"])
def test_after_the_wait_the_run_has_failed_and_says_why(hosts: NewCluster, kind: str) -> None:
    cluster = hosts("n1", "n2", "n3")
    start(cluster, kind, restart_wait_s=2.0)
    kill_all(cluster, "r1", "n3")
    if kind == "gang":
        # A real worker:1 would end because it has lost worker:2. Here, the test kills worker:1.
        os.kill(cluster.status("r1", "worker:1").pid, signal.SIGKILL)
    states = cluster.wait_ended("r1", "n1", "n2")
    words = (
        "worker:2 on n3 lost: no process manages the task, and its host has refused connections "
        "to the run's port for all of restart.wait (2 s)"
    )
    assert {state.abort_reason for state in states.values()} == {words}
    assert cluster.status("r1", "worker:0").outcome == "stopped"
