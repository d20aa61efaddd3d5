"""Return a run of three tasks on three hosts, and answers that the hosts may give about the run."""

from __future__ import annotations

from typing import Any

from tfdeploy.agent.wire import HostRunState, TaskStatus
from tfdeploy.model.plan import HostPlan, Plan, TaskPlan

RUN = "digits-20261121-101500-3fa1"


def task(name: str, host: str, port: int, gpus: tuple[int, ...] = ()) -> TaskPlan:
    role, index = name.split(":")
    return TaskPlan(
        task=name,
        role=role,
        index=int(index),
        host=host,
        address=f"192.0.2.1:{port}",
        port=port,
        gpus=gpus,
        argv=("python",),
        env={},
        deciding=name == "worker:0",
        why="",
    )


PLAN = Plan(
    run=RUN,
    job="digits",
    mode="async",
    created=1000.0,
    operator="me@here",
    release="abc",
    command=("python", "train.py"),
    cluster={},
    hosts=tuple(
        HostPlan(host=h, address=h, mesh_port=2230, workdir="/w", python="python3")
        for h in ("n1", "n2", "n3")
    ),
    tasks=(
        task("ps:0", "n1", 2222),
        task("worker:0", "n2", 2223, (0,)),
        task("worker:1", "n3", 2223),
    ),
    deciding=("worker:0",),
    flags_appended=(),
)
WHERE = {t.task: t.host for t in PLAN.tasks}


def hosts(
    phase: str = "committed", **per_host: dict[str, Any] | None
) -> dict[str, HostRunState | None]:
    states: dict[str, HostRunState | None] = {}
    for name in ("n1", "n2", "n3"):
        given = per_host.get(name, {})
        states[name] = (
            None
            if given is None
            else HostRunState(
                run=RUN, job="digits", host=name, **{"phase": phase, "started": 1001.0, **given}
            )
        )
    return states


def statuses(*rows: tuple[str, str, str | None, dict[str, Any]]) -> dict[str, TaskStatus]:
    return {
        n: TaskStatus(run=RUN, task=n, host=WHERE[n], attempt=1, state=s, outcome=o, **more)
        for n, s, o, more in rows
    }


def all_of(state: str, outcome: str | None = None, **more: Any) -> dict[str, TaskStatus]:
    return statuses(*((name, state, outcome, more) for name in WHERE))


RUNNING = all_of("running", up=True)
SUCCEEDED = statuses(
    ("ps:0", "ended", "stopped", {"ended": 1012.0}),
    ("worker:0", "ended", "succeeded", {"exit_code": 0, "ended": 1010.0}),
    ("worker:1", "ended", "succeeded", {"exit_code": 0, "ended": 1009.0}),
)
FAILED = statuses(
    ("ps:0", "ended", "stopped", {"ended": 1012.0}),
    ("worker:0", "ended", "failed", {"exit_code": 1, "ended": 1011.0}),
    ("worker:1", "ended", "failed", {"exit_code": 3, "ended": 1009.0}),
)
DEATH = {"task": "worker:1", "host": "n3", "outcome": "failed", "exit_code": 3, "time": 1009.0}
LATER = {"task": "worker:0", "host": "n2", "outcome": "failed", "exit_code": 1, "time": 1011.0}
OOM = {"task": "ps:0", "host": "n1", "outcome": "killed", "signal": 9, "reason": "out of memory"}

AGAIN = RUNNING | statuses(("worker:1", "pending", None, {"reason": "starts again: exit code 3"}))
