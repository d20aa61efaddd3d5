"""Define the screens of the dashboard that are stored as expected outputs of tests and as pictures.
A screen is defined by the events of a run, a size, and the keys that are pressed.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from rich.console import Console

from support.dashboard_scenes import event, line, plan_of
from support.recorded import replay_to_view
from tfdeploy.model.events import Event
from tfdeploy.model.plan import Plan, plan_to_json
from tfdeploy.ui.dashboard.dashboard import Dashboard
from tfdeploy.ui.dashboard.frame import compose_frame
from tfdeploy.ui.screen import Screen

BEGAN = 1000.0


@dataclass(frozen=True)
class Scene:
    """A run, a screen size and keys.

    The `keys` are pressed after all events. Each key draws a frame.
    """

    events: Callable[[], Iterator[Event]]
    width: int = 110
    height: int = 30
    keys: tuple[str, ...] = ()


def job(workers: int, **what: object) -> Plan:
    """Return a plan with one ps and `workers` workers. Each worker has a GPU."""
    plan = plan_of(workers)
    tasks = tuple(
        replace(
            task,
            why=f"{task.role} {task.index + 1}, in inventory order",
            argv=("python", "train.py", "--steps=4000"),
        )
        for task in plan.tasks
    )
    return replace(plan, tasks=tasks, secrets=("WANDB_API_KEY",), **what)  # type: ignore[arg-type]


def begun(plan: Plan) -> Iterator[Event]:
    yield Event(kind="plan", time=BEGAN, run=plan.run, data=plan_to_json(plan))
    for host in plan.hosts:
        yield event("host", BEGAN + 1, host.host, state="connected")
    for task in plan.tasks:
        yield running(plan, task.task, BEGAN + 4)
    yield event("run", BEGAN + 5, state="running")


def running(plan: Plan, task: str, at: float, attempt: int = 1) -> Event:
    fresh = {
        "attempt": attempt,
        "pid": 4000 + attempt,
        "started": at,
        "ended": None,
        "outcome": None,
        "exit_code": None,
    }
    told = event(
        "task", at, host_of(plan, task), task, state="running", up=True, reason=None, **fresh
    )
    return replace(told, attempt=attempt)


def host_of(plan: Plan, task: str) -> str:
    return next(each.host for each in plan.tasks if each.task == task)


def used(plan: Plan, at: float, busy: float = 92.0) -> Iterator[Event]:
    """Yield samples in which each host reports the resources that its task uses."""
    for number, task in enumerate(plan.tasks):
        gpus = [[0, busy - number % 7, (9 + number % 3) << 30, 24 << 30]] if task.gpus else []
        sample = {
            "time": at,
            "attempt": 1,
            "cpu": 1.2 + 0.1 * (number % 5),
            "memory": (3 << 30) + (number << 24),
        }
        host = {
            "time": at,
            "cpu": 2.0,
            "gpus": gpus,
            "rates": {"received": 11 << 20, "sent": 3 << 20},
        }
        yield Event(
            kind="sample",
            time=at,
            run=plan.run,
            host=task.host,
            data={"host": host, "tasks": {task.task: sample}},
        )


def loss(step: float) -> float:
    return round(2.3 * math.exp(-step / 700) + 0.08 + 0.02 * math.sin(step / 60), 4)


def trained(plan: Plan, seconds: int, slow: dict[str, float] | None = None) -> Iterator[Event]:
    """Yield log lines: once a second, each worker prints its own step and the global step."""
    workers = [task.task for task in plan.tasks if task.role == "worker"]
    for second in range(seconds):
        at = BEGAN + 6 + second
        if second % 10 == 0:
            yield from used(plan, at)
        shared = 20 * second
        for task in workers:
            own = int(5 * second * (slow or {}).get(task, 1.0))
            text = (
                f"step {own} (global step: {shared}) loss: {loss(shared):.4f} accuracy: "
                f"{1 - loss(shared) / 2.6:.3f}"
            )
            yield line(at, task, text, plan)


METRICS = {"accuracy": r"accuracy: ([\d.]+)"}


def healthy() -> Iterator[Event]:
    plan = job(7, metrics=METRICS)
    yield from begun(plan)
    yield from trained(plan, 120)


def straggler() -> Iterator[Event]:
    plan = job(16, metrics=METRICS)
    yield from begun(plan)
    yield from trained(plan, 120, {"worker:11": 0.47})


def crash_loop() -> Iterator[Event]:
    plan = job(7, metrics=METRICS)
    yield from begun(plan)
    yield from trained(plan, 30)
    host = host_of(plan, "worker:3")
    for attempt in (1, 2, 3):
        at = BEGAN + 36 + 8 * attempt
        yield line(at, "worker:3", "Traceback (most recent call last):", plan)
        yield line(
            at,
            "worker:3",
            "FileNotFoundError: [Errno 2] No such file or directory: 'data/shard-3.npz'",
            plan,
        )
        told = {
            "attempt": attempt,
            "outcome": "failed",
            "exit_code": 1,
            "started": at - 6.0,
            "ended": at,
        }
        yield replace(event("task", at, host, "worker:3", state="ended", **told), attempt=attempt)
        why = f"starts again: failed with exit code 1, restart {attempt} of 3"
        again = {"state": "pending", "attempt": attempt, "outcome": None, "reason": why}
        yield replace(event("task", at + 0.1, host, "worker:3", **again), attempt=attempt)
        yield running(plan, "worker:3", at + 2, attempt + 1)


def cut_host() -> Iterator[Event]:
    plan = job(7, metrics=METRICS)
    yield from begun(plan)
    yield from trained(plan, 60)
    yield event("host", BEGAN + 66, "n5", state="unreachable", text="no answer in 10 s")
    alone = replace(plan, tasks=tuple(task for task in plan.tasks if task.host != "n5"))
    for second in range(60, 80):
        for task in alone.tasks[1:]:
            text = f"step {5 * second} (global step: {18 * second}) loss: {loss(18 * second):.4f}"
            yield line(BEGAN + 6 + second, task.task, text, plan)


def waiting() -> Iterator[Event]:
    """Yield the events of a synchronous run in which one worker is frozen and the others wait for
    it.
    """
    plan = job(4, mode="sync")
    yield from begun(plan)
    yield from trained(plan, 40)
    why = "frozen: its process 4001 is stopped; on n4 `kill -CONT 4001` lets it go on"
    for task in plan.tasks[1:]:
        reason = why if task.task == "worker:2" else "waits for worker:2 on n4"
        told = {
            "state": "running",
            "attempt": 1,
            "pid": 4001,
            "health": "stalled",
            "health_reason": reason,
        }
        yield event("task", BEGAN + 350, task.host, task.task, **told, health_since=BEGAN + 46)


def many() -> Iterator[Event]:
    plan = job(255)
    yield from begun(plan)
    workers = [task.task for task in plan.tasks if task.role == "worker"]
    for second in range(40):
        for number, task in enumerate(workers):
            if number % 8 == second % 8:
                yield line(
                    BEGAN + 6 + second,
                    task,
                    f"step {20 * second} loss: {loss(20 * second):.4f}",
                    plan,
                )
    yield event("host", BEGAN + 47, "n78", state="unreachable", text="no answer in 10 s")
    ended = {
        "state": "ended",
        "attempt": 1,
        "outcome": "killed",
        "signal": 9,
        "started": BEGAN + 4,
        "ended": BEGAN + 45,
    }
    yield event(
        "task", BEGAN + 45, "n152", "worker:150", **ended, reason="likely out of memory: oom_kill"
    )


def keras() -> Iterator[Event]:
    plan = job(4, mode="mirrored")
    tasks = tuple(
        replace(task, deciding=True, argv=("python", "fit.py"))
        for task in plan.tasks
        if task.role == "worker"
    )
    plan = replace(
        plan, tasks=tasks, hosts=plan.hosts[1:], deciding=tuple(task.task for task in tasks)
    )
    yield from begun(plan)
    for epoch in range(1, 18):
        for task in plan.tasks:
            at = BEGAN + 6 + 12 * epoch
            value = loss(150 * epoch)
            yield line(at - 12, task.task, f"Epoch {epoch}/40", plan)
            end = (
                f" - loss: {value:.4f} - accuracy: {1 - value / 2.6:.4f} - val_loss: "
                f"{value + 0.05:.4f}"
            )
            yield line(
                at - 1,
                task.task,
                f"938/938 [==============================] - 12s 12ms/step{end}",
                plan,
            )
        yield from used(plan, BEGAN + 6 + 12 * epoch, 97.0)


def chinese() -> Iterator[Event]:
    plan = job(3)
    yield from begun(plan)
    for second in range(20):
        for task in ("worker:0", "worker:1", "worker:2"):
            yield line(
                BEGAN + 6 + second,
                task,
                f"第 {second} 轮训练: step {20 * second} "
                f"loss: {loss(20 * second):.4f} 学习率已调整",
                plan,
            )
    yield line(BEGAN + 30, "worker:1", "警告: 数据文件夹 /数据/训练集 里有 3 个文件无法读取", plan)


SCREENS = {
    "healthy": Scene(healthy),
    "healthy-80x24": Scene(healthy, 80, 24),
    "healthy-60x15": Scene(healthy, 60, 15),
    "straggler": Scene(straggler),
    "crash-loop": Scene(crash_loop),
    "crash-loop-80x24": Scene(crash_loop, 80, 24),
    "crash-loop-task": Scene(crash_loop, 110, 40, ("enter",)),
    "crash-loop-timeline": Scene(crash_loop, 110, 30, ("t",)),
    "cut-host": Scene(cut_host),
    "cut-host-80x24": Scene(cut_host, 80, 24),
    "waiting": Scene(waiting),
    "waiting-60x15": Scene(waiting, 60, 15),
    "many": Scene(many),
    "many-80x24": Scene(many, 80, 24),
    "keras": Scene(keras),
    "keras-curves": Scene(keras, 110, 40, ("c",)),
    "chinese": Scene(chinese, 100, 24),
    "chinese-60x15": Scene(chinese, 60, 15),
    "filtered": Scene(cut_host, 110, 30, ("/", *"@n[3-5] !unreachable", "enter")),
    "help": Scene(healthy, 110, 30, ("?",)),
    "help-80x24": Scene(healthy, 80, 24, ("?", "pgdn")),
    "healthy-task": Scene(healthy, 110, 30, ("down", "down", "enter")),
}


def dashboard_of(scene: Scene) -> tuple[Dashboard, float]:
    """Return the dashboard after all events and keys, and the time of its last frame in UTC
    seconds.
    """
    clock = [0.0]
    board = Dashboard(clock=lambda: clock[0], command=lambda args: None)
    board.scene.unicode = True
    for one in scene.events():
        clock[0] = max(clock[0], one.time - BEGAN)
        replay_to_view(board, one)
        board.apply_events()
        board.ring.record_arrivals(clock[0])
    now = BEGAN + clock[0] + 1
    compose_frame(board.scene, scene.width, scene.height, now)
    for key in scene.keys:
        board.view.handle_key(key)
        compose_frame(board.scene, scene.width, scene.height, now)
    return board, now


def terminal_bytes(scene: Scene) -> str:
    """Return the bytes that a terminal of the scene's size receives for the last frame."""
    board, now = dashboard_of(scene)
    out = io.StringIO()
    console = Console(
        file=out,
        width=scene.width,
        height=scene.height,
        force_terminal=True,
        color_system="256",
        legacy_windows=False,
    )
    with Screen(console) as screen:
        console.size = (scene.width, scene.height)
        screen.draw(compose_frame(board.scene, scene.width, scene.height, now))
        return out.getvalue()
