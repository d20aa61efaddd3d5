"""Choose the rows of the table: sort and filter the tasks, and fold equal tasks into one row if
there is no room for all. The functions are pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from tfdeploy.model.progress.run_progress import RunProgress
from tfdeploy.model.progress.task_progress import TaskProgress
from tfdeploy.model.progress.trouble import FIRST, SLOW, STARTING, TaskTrouble
from tfdeploy.text.names import fold_names, group_by_key

# The maximum number of characters in the name of a folded row.
LONGEST = 24
# The orders in which the rows of the table can be sorted. The first order is the default.
SORTS = ("trouble", "task", "host", "pace")


class TableRow(NamedTuple):
    """A row of the table, which stands for one task or for several equal tasks. `name`: the name of
    the task, or "worker:[0-63]", or "worker x250"."""

    name: str
    tasks: tuple[str, ...]
    mark: TaskTrouble

    @property
    def is_folded(self) -> bool:
        return len(self.tasks) > 1


def table_rows(
    progress: RunProgress,
    troubles: Mapping[str, TaskTrouble],
    shown_tasks: Sequence[str],
    max_rows: int,
    *,
    sort: str,
    fold: bool | None,
    open_role: str | None,
) -> list[TableRow]:
    """Return the rows of the table, at most `max_rows` rows if folding makes this possible.

    `shown_tasks`: the tasks that pass the filter, in the plan's order. `sort`: one of SORTS.
    `fold`: True folds equal tasks into one row, False folds no tasks, and None folds them only if
    there are more tasks than `max_rows`. `open_role`: a role whose tasks are never folded. Tasks in
    trouble are folded only if folding the other tasks is not enough."""
    key = _sort_key(progress, troubles, sort)
    tasks = sorted(shown_tasks, key=key) if key else list(shown_tasks)
    if fold is None:
        fold = len(tasks) > max_rows
    if not fold:
        return [TableRow(task, (task,), troubles[task]) for task in tasks]
    folded_items = _fold_rows(tasks, troubles, lambda mark: not mark.needs_attention, open_role)
    return (
        folded_items
        if len(folded_items) <= max_rows
        else _fold_rows(tasks, troubles, lambda mark: mark.rank != FIRST, open_role)
    )


def _fold_rows(
    tasks: Sequence[str],
    troubles: Mapping[str, TaskTrouble],
    can_fold: Callable[[TaskTrouble], bool],
    open_role: str | None,
) -> list[TableRow]:
    """Return the rows of the table. Tasks of the same role and state become one folded row, at the
    position of the first of these tasks. `can_fold` gets a task's mark (the TaskTrouble of the
    task), and returns True if the task may be folded.
    """

    def group_of(task: str) -> tuple[str, str]:
        mark, role = troubles[task], task.partition(":")[0]
        if not can_fold(mark) or role == open_role:
            return task, ""
        return role, "slow" if mark.rank == SLOW else mark.state.partition(":")[0]

    groups = group_by_key((group_of(task), task) for task in tasks)
    return [
        TableRow(_row_name(names), tuple(names), troubles[names[0]]) for names in groups.values()
    ]


def _row_name(names: Sequence[str]) -> str:
    folded = fold_names(names)
    if len(names) == 1 or len(folded) <= LONGEST:
        return folded
    return f"{names[0].partition(':')[0]} x{len(names)}"


def _sort_key(
    progress: RunProgress, troubles: Mapping[str, TaskTrouble], sort: str
) -> Callable[[str], Any] | None:
    """Return the function that gives the sort key of a task; None for the plan's order. Tasks with
    equal keys keep the plan's order."""
    if sort == "trouble":
        # Among the healthy tasks, those that wait for another task come last. Apart from that,
        # healthy tasks keep the plan's order.
        return lambda task: (
            min(troubles[task].rank, STARTING),
            troubles[task].why.startswith("waits for "),
        )
    if sort == "host":
        return lambda task: progress.tasks[task].host
    if sort == "pace":
        return lambda task: _pace_key(progress, progress.tasks[task])
    return None


def _pace_key(progress: RunProgress, task: TaskProgress) -> float:
    rate = progress.own_steps_per_s(task)
    return float("inf") if rate is None else rate
