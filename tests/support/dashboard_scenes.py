"""Yield the events of an example run, for tests of the dashboard. The run has eight tasks. Its
events begin with the sync of the code and end with a failure.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tfdeploy.model.events import Event
from tfdeploy.model.plan import HostPlan, Plan, TaskPlan, plan_to_json

VERSIONS = {"tfdeploy": "0.1.0", "Python": "3.11.7", "TensorFlow": "2.16.1"}
RUN = "digits-20261121-101500-3fa1"


def plan_of(workers: int) -> Plan:
    names = ["ps:0", *(f"worker:{i}" for i in range(workers))]
    tasks = []
    for at, name in enumerate(names, 1):
        role, index = name.split(":")
        gpus = (0,) if role == "worker" else ()
        tasks.append(
            TaskPlan(
                task=name,
                role=role,
                index=int(index),
                host=f"n{at}",
                address=f"n{at}:2222",
                port=2222,
                gpus=gpus,
                argv=(),
                env={},
                deciding=at == 2,
                why="",
            )
        )
    return Plan(
        run=RUN,
        job="digits",
        mode="async",
        created=1000.0,
        operator="me@here",
        release="abc",
        command=("python", "train.py"),
        cluster={},
        hosts=tuple(
            HostPlan(
                host=t.host,
                address=t.host,
                mesh_port=2230,
                workdir="/w",
                python="python3",
                versions=dict(VERSIONS),
            )
            for t in tasks
        ),
        tasks=tuple(tasks),
        deciding=("worker:0",),
        flags_appended=(),
    )


PLAN = plan_of(7)


def event(
    kind: Any, time: float, host: str | None = None, task: str | None = None, **data: Any
) -> Event:
    return Event(
        kind=kind, time=time, run=RUN, host=host, task=task, attempt=1 if task else None, data=data
    )


def line(time: float, task: str, text: str, plan: Plan = PLAN) -> Event:
    host = next((t.host for t in plan.tasks if t.task == task), "n1")
    return event("line", time, host, task, stream="out", line=text, offset=0)


def syncing() -> Iterator[Event]:
    for name in ("lock", "probe", "plan"):
        yield event("step", 1000.0, step=name, state="begin")
        yield event("step", 1000.5, step=name, state="done")
    for host in PLAN.hosts:
        yield event("host", 1000.6, host.host, state="connected")
    yield Event(kind="plan", time=1001.0, run=RUN, data=plan_to_json(PLAN))
    yield event("step", 1001.0, step="sync", state="begin")
    for host in PLAN.hosts[:5]:
        yield event(
            "transfer",
            1001.0,
            host.host,
            what="code",
            state="begin",
            sent_bytes=0,
            total_bytes=60_000_000,
        )
        yield event(
            "transfer",
            1003.0,
            host.host,
            what="code",
            state="moving",
            sent_bytes=12_000_000,
            total_bytes=60_000_000,
        )


def training(plan: Plan = PLAN) -> Iterator[Event]:
    for host in plan.hosts[:5]:
        yield event(
            "transfer",
            1006.0,
            host.host,
            what="code",
            state="done",
            sent_bytes=60_000_000,
            total_bytes=60_000_000,
        )
    for task in plan.tasks:
        yield event(
            "task",
            1007.0,
            task.host,
            task.task,
            state="running",
            attempt=1,
            pid=4242,
            up=True,
            started=1006.5,
        )
    yield event("run", 1012.0, state="running")
    for i in range(200):
        for name in ("worker:0", "worker:1", "worker:2"):
            yield line(1012.0 + i / 10, name, f"step {i * 7} loss: {3 / (i + 1):.4f} [/x]")
    yield line(1032.0, "ps:0", "\x1b[31mWARNING\x1b[0m: \x1b]0;owned\x07something")


def dying() -> Iterator[Event]:
    yield line(1033.0, "worker:1", "ValueError: bad shard digits-003")
    ended: dict[str, Any] = {"state": "ended", "attempt": 1}
    yield event(
        "task", 1033.1, "n3", "worker:1", **ended, outcome="failed", exit_code=1, ended=1033.0
    )
    yield event("task", 1033.6, "n1", "ps:0", **ended, outcome="stopped", ended=1033.4)


def ended() -> Iterator[Event]:
    yield event("run", 1034.0, state="failed", cause="worker:1 on n3 failed with exit code 1")


def sampled(plan: Plan = PLAN, *, time: float = 1033.0) -> Iterator[Event]:
    """Yield samples in which each host reports the resources that its task uses.

    All hosts except the first have a GPU.
    """
    for number, task in enumerate(plan.tasks):
        gpus = [[0, 90.0 - number, (10 + number) << 30, 80 << 30]] if number else []
        used = {"time": time, "attempt": 1, "cpu": 0.25 + number, "memory": (number + 1) << 30}
        said = {"host": {"time": time, "cpu": 1.0, "gpus": gpus}, "tasks": {task.task: used}}
        yield Event(kind="sample", time=time, run=RUN, host=task.host, data=said)
