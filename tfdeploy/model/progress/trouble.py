"""Give each task of a run a rank and a text that describe its trouble. Tasks that need attention
have the lowest ranks. The functions are pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tfdeploy.model.progress.run_progress import RunProgress
from tfdeploy.model.progress.task_progress import TaskProgress
from tfdeploy.model.progress.trends import SlowTask
from tfdeploy.text.row_values import outcome_words, short_error
from tfdeploy.text.units import format_roughly

# Ranks, the worst first. FIRST is the first death; CUT is a task whose host is unreachable; AGAIN
# is a task that restarted recently.
FIRST, DEAD, CUT, STALLED, AGAIN, SLOW, STARTING, RUNNING, DONE = range(9)
RESTARTED = "restarted"  # the state shown for a task that runs after a recent restart
_AGAIN_S = 120.0  # a restart is recent for this long


class TaskTrouble(NamedTuple):
    """The trouble of a task. `rank`: one of the constants from FIRST to DONE. `state`: the task's
    state, as a table shows it. `why`: the reason of the trouble; "" if there is none."""

    rank: int
    state: str
    why: str = ""

    @property
    def needs_attention(self) -> bool:
        return self.rank <= SLOW


def classify_tasks(
    progress: RunProgress, slow_task_by_name: Mapping[str, SlowTask], now: float
) -> dict[str, TaskTrouble]:
    """Return {task: its TaskTrouble}, in the plan's order. `now`: UTC seconds, to decide whether a
    restart is recent."""
    first = progress.first_death
    ended = progress.state in ("succeeded", "stopped")
    return {
        name: _classify_task(progress, task, slow_task_by_name.get(name), task is first, ended, now)
        for name, task in progress.tasks.items()
    }


def _classify_task(
    progress: RunProgress,
    task: TaskProgress,
    slow: SlowTask | None,
    failed_first: bool,
    run_has_ended: bool,
    now: float,
) -> TaskTrouble:
    why = task.reason or ""
    is_running = task.state == "running"
    if task.outcome and task.state in ("ended", "lost"):
        rank = FIRST if failed_first else DEAD if task.is_dead and not run_has_ended else DONE
        outcome = outcome_words(task.outcome, task.exit_code, task.signal)
        return TaskTrouble(
            rank, outcome, why or (short_error(task.last_line) if task.is_dead else "")
        )
    if health := progress.health(task):
        rank = STALLED
        if health == "unreachable":
            # This lookup cannot fail, because a task is unreachable only if its host is in
            # `progress.hosts`.
            rank, why = CUT, progress.hosts[task.host].text or ""
        return TaskTrouble(rank, health, progress.stalled_because(task, now) or why)
    lasted = now - task.started if is_running and task.started else 0.0
    if task.restarts and lasted < _AGAIN_S:
        state = RESTARTED if is_running else task.state
        return TaskTrouble(AGAIN, state, why or _restart_words(progress, task, now))
    if slow is not None:
        return TaskTrouble(SLOW, slow.cell_text, slow.text)
    return TaskTrouble(RUNNING if is_running else STARTING, task.state, why)


def last_restart_cause(progress: RunProgress, task: TaskProgress) -> str:
    """Return why the task last restarted, such as 'restart 2, after failed: 1', or only 'restart 2'
    if the cause is not known."""
    return f"restart {task.restarts}{_previous_end_words(progress, task, ', after ')}"


def _restart_words(progress: RunProgress, task: TaskProgress, now: float) -> str:
    """Return text such as '2x, 40 s ago: failed: 1', short enough to stand beside the numbers of a
    running task."""
    if task.state != "running" or task.started is None:
        return last_restart_cause(progress, task)
    before = _previous_end_words(progress, task, ": ")
    return f"{task.restarts}x, {format_roughly(now - task.started)} ago{before}"


def _previous_end_words(progress: RunProgress, task: TaskProgress, prefix: str) -> str:
    """Return `prefix`, followed by text that says how the previous attempt ended. Return "" if that
    is not known."""
    before = progress.attempts.get((task.task, task.attempt - 1))
    return f"{prefix}{before.end_text}" if before and before.end_text else ""
