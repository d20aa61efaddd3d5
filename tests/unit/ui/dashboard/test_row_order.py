"""Test how the dashboard orders its rows, and which rows it folds into one."""

from __future__ import annotations

from support.recorded import fold_events as fold_into
from support.screens import cut_host, many, straggler, waiting
from tfdeploy.model.progress.run_progress import RunProgress
from tfdeploy.model.progress.trouble import DEAD, TaskTrouble, classify_tasks
from tfdeploy.ui.dashboard.row_order import TableRow, table_rows


def ordered_rows(
    events: object,
    rows: int,
    *,
    sort: str = "trouble",
    fold: bool | None = None,
    open_: str | None = None,
) -> list[TableRow]:
    progress = RunProgress()
    fold_into(progress, events())  # type: ignore[operator]
    return table_rows(
        progress,
        classify_tasks(progress, {}, progress.latest or 0),
        list(progress.tasks),
        rows,
        sort=sort,
        fold=fold,
        open_role=open_,
    )


def test_problems_first_then_order_of_plan() -> None:
    assert [item.name for item in ordered_rows(cut_host, 20)][:3] == [
        "worker:3",
        "ps:0",
        "worker:0",
    ]
    assert [item.name for item in ordered_rows(cut_host, 20, sort="task")][:3] == [
        "ps:0",
        "worker:0",
        "worker:1",
    ]


def test_task_that_others_wait_for_is_first() -> None:
    assert [item.name for item in ordered_rows(waiting, 20)][:2] == ["worker:2", "worker:0"]


def test_slowest_first() -> None:
    assert next(item.name for item in ordered_rows(straggler, 20, sort="pace")) == "worker:11"


def test_similar_tasks_are_folded_if_space_is_short() -> None:
    rows_shown = ordered_rows(many, 8)
    assert [(item.name, len(item.tasks)) for item in rows_shown] == [
        ("worker:150", 1),
        ("worker:76", 1),
        ("ps:0", 1),
        ("worker x253", 253),
    ]
    assert len(ordered_rows(many, 8, fold=False)) == 256
    assert len(ordered_rows(many, 8, open_="worker")) == 256
    assert len(ordered_rows(cut_host, 3)) == 3


def test_task_with_problem_is_never_hidden() -> None:
    progress = RunProgress()
    fold_into(progress, many())
    by_name = {
        name: TaskTrouble(DEAD, f"failed: {1 + number % 2}")
        for number, name in enumerate(progress.tasks)
    }
    drawn = table_rows(
        progress, by_name, list(by_name), 8, sort="trouble", fold=None, open_role=None
    )
    assert [(item.name, len(item.tasks)) for item in drawn] == [
        ("ps:0", 1),
        ("worker:[0-254]", 255),
    ]
