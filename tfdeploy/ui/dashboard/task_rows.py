"""Compose the table of the dashboard: a row for each task, or for each host while there are no
tasks yet, with as many columns as fit. The functions are pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import isfinite
from statistics import median
from typing import NamedTuple

from tfdeploy.model.answers.samples import (
    PRINTED_RATE,
    has_value_to_show,
    is_rate,
    metric_label,
    metrics_for_tables,
)
from tfdeploy.model.progress.run_progress import RunProgress
from tfdeploy.model.progress.task_progress import HostProgress, TaskProgress, sum_transfers
from tfdeploy.model.progress.trends import LOSS
from tfdeploy.model.progress.trouble import (
    AGAIN,
    CUT,
    DONE,
    RESTARTED,
    SLOW,
    STARTING,
    TaskTrouble,
    last_restart_cause,
)
from tfdeploy.ui.amounts import (
    format_bytes,
    format_count,
    format_duration,
    format_number,
    format_transfer,
)
from tfdeploy.ui.cells import Row, Span, pad_or_cut, task_style
from tfdeploy.ui.dashboard.row_order import TableRow
from tfdeploy.ui.dashboard.scene import Scene
from tfdeploy.ui.plots import draw_sparkline
from tfdeploy.ui.sanitise import clean

LAST_LINE = "last line"
METRICS = "metrics"
# The name of the column with the curve of the loss.
TREND = "trend"
# The minimum width of the column of last lines. This width and all widths below are in terminal
# columns.
_LAST_LINE_WIDTH = 20
# The minimum width of the column of metrics.
_METRICS_WIDTH = 26
# The width of one value of a metric, with its separators.
_FIGURE_WIDTH = 9
# The width of a curve in the table.
_SPARK = 8
_NAMES = ("task", "state", "host")
# If a task was restarted and its row also shows why, the row has only these columns.
_WITH_WHY = (*_NAMES, "gpu", "cpu", "step", "steps/s", "loss")
# The columns that are aligned to the right.
_RIGHT = frozenset(
    ["step", "steps/s", "loss", "pid", "restarts", "cpu", "memory", "net", "gpu", "age"]
)
# The columns of the table in their order, with their widths. The columns task, host and address may
# be narrower; the columns metrics and last line may be wider.
_WIDTHS = {
    "task": 24,
    "state": 11,
    "host": 16,
    "gpu": 11,
    "cpu": 5,
    "memory": 7,
    "net": 8,
    "step": 8,
    "steps/s": 7,
    "loss": 8,
    TREND: _SPARK,
    METRICS: _METRICS_WIDTH,
    "restarts": 8,
    "age": 5,
    "address": 21,
    "pid": 7,
    LAST_LINE: _LAST_LINE_WIDTH,
}
# The order in which columns are dropped if the screen is too narrow.
_FALL_FIRST = (
    LAST_LINE,
    "pid",
    "address",
    "memory",
    "net",
    "age",
    TREND,
    "cpu",
    METRICS,
    "restarts",
    "gpu",
    "steps/s",
    "loss",
    "host",
    "step",
)
_STATE_STYLES = {
    CUT: "bold yellow",
    AGAIN: "yellow",
    SLOW: "yellow",
    STARTING: "yellow",
    DONE: "green",
}
_HOST_STYLES = {"connected": "green", "unreachable": "bold yellow", "failed": "bold red"}


class Column(NamedTuple):
    name: str
    width: int


class TaskTable:
    """The data that the table's rows need in addition to their tasks. `quiet_s`: for each silent
    task, the seconds since its last line or step. `metrics`: the names in the column of metrics."""

    def __init__(self, scene: Scene) -> None:
        self.progress, self.trends, self.unicode = scene.progress, scene.trends, scene.unicode
        self.quiet_s = scene.silent_tasks
        progress = scene.progress
        has_rates = any(
            progress.own_steps_per_s(task) is not None for task in progress.tasks.values()
        )
        names = metrics_for_tables(progress.extra_metrics, progress.job_metrics)
        self.metrics = [
            name for name in names if not is_rate(name) or self._shows_rate(name, has_rates)
        ]

    def _shows_rate(self, name: str, has_rates: bool) -> bool:
        """Return True if the column of metrics shows the rate `name`. `has_rates`: whether the
        column steps/s has values. If so, the rate global_step/sec is not shown again as a
        metric."""
        if has_rates and name.endswith(PRINTED_RATE):
            return False
        values = (task.measures.newest_values.get(name) for task in self.progress.tasks.values())
        job_metrics = self.progress.job_metrics
        return any(has_value_to_show(name, value, job_metrics) for value in values)


class _NumberColumn(NamedTuple):
    """A column of numbers. `value`: returns the number of a task; None if the number is not known.
    `format_value`: formats the number. `of_several`: returns the number for a folded row."""

    value: Callable[[RunProgress, TaskProgress], float | None]
    format_value: Callable[[float], str]
    of_several: Callable[[list[float]], float] = median

    def cell_text(self, progress: RunProgress, tasks: Sequence[TaskProgress]) -> str:
        """Return the text of the cell; "" if there is no value. In a row for one task, the text is
        the task's value. In a row for several tasks, `of_several` computes one value from their
        finite values."""
        known = [value for task in tasks if (value := self.value(progress, task)) is not None]
        if len(tasks) > 1:
            finite = list(filter(isfinite, known))
            known = [self.of_several(finite)] if finite else []
        return self.format_value(known[0]) if known else ""


def _percent(value: float) -> str:
    return f"{value:.0f}%"


_FIGURES = {
    # 100% means that one core is fully used.
    "cpu": _NumberColumn(lambda _, task: task.cpu, lambda cores: _percent(100 * cores)),
    "memory": _NumberColumn(lambda _, task: task.memory, format_bytes),
    "step": _NumberColumn(lambda _, task: task.step, partial(format_number, digits=7), max),
    "steps/s": _NumberColumn(RunProgress.own_steps_per_s, partial(format_number, digits=3)),
    "loss": _NumberColumn(
        lambda _, task: task.loss, format_number, lambda losses: float(f"{median(losses):.3g}")
    ),
    "restarts": _NumberColumn(lambda _, task: task.restarts or None, format_number, sum),
}
_GPU = (
    _NumberColumn(lambda progress, task: progress.gpu_use(task)[0], _percent),
    _NumberColumn(lambda progress, task: progress.gpu_use(task)[1], format_bytes),
)


def fitting_columns(table: TaskTable, items: Sequence[TableRow], width: int) -> list[Column]:
    """Return the columns that fit, in their order. The columns of metrics and of last lines share
    the remaining width."""
    progress, metric_names = table.progress, table.metrics
    hosts = [_host_text(progress, item.tasks) for item in items] or progress.hosts
    need = sum(len(metric_label(name)) + _FIGURE_WIDTH + _SPARK for name in metric_names)
    wide = {**_WIDTHS, METRICS: min(_METRICS_WIDTH, need)}
    for name, texts in (
        ("task", [item.name for item in items]),
        ("host", hosts),
        ("address", [task.address for task in progress.tasks.values()]),
    ):
        wide[name] = min(wide[name], max(map(len, (name, *texts))))
    missing = _empty_columns(table)
    names = [name for name in wide if name not in missing]
    for name in _FALL_FIRST:
        if sum(wide[n] + 1 for n in names) - 1 > width and name in names:
            names.remove(name)
    free_columns = max(0, width + 1 - sum(wide[name] + 1 for name in names))
    if METRICS in names:
        more = min(free_columns, need - wide[METRICS])
        wide[METRICS], free_columns = wide[METRICS] + more, free_columns - more
    wide[LAST_LINE] += free_columns
    return [Column(name, wide[name]) for name in names]


def _empty_columns(table: TaskTable) -> set[str]:
    """Return the columns for which no task has a value."""
    progress = table.progress
    tasks = progress.tasks.values()
    known = {
        name: any(each.value(progress, task) is not None for task in tasks)
        for name, each in _FIGURES.items()
    }
    for name, field in (("gpu", "gpus"), ("age", "lines"), ("pid", "pid"), ("address", "address")):
        known[name] = any(getattr(task, field) for task in tasks)
    known["net"] = any(host.traffic is not None for host in progress.hosts.values())
    known[TREND], known[METRICS] = known["loss"], bool(table.metrics)
    return {name for name, is_known in known.items() if not is_known}


def header_row(columns: Sequence[Column], *, sort: str = "") -> Row:
    styles = {name: "dim underline" if name == sort else "dim" for name, _ in columns}
    return _build_row(columns, {name: name for name in styles}, styles)


def item_row(
    table: TaskTable, item: TableRow, columns: Sequence[Column], *, selected: bool, width: int
) -> Row:
    """Return the row of one task or of several equal tasks."""
    progress, mark = table.progress, item.mark
    tasks = [progress.tasks[name] for name in item.tasks]
    texts = (
        _folded_cell_texts(progress, tasks, mark)
        if item.is_folded
        else _cell_texts(table, tasks[0], mark, dict(columns).get(METRICS, 0))
    )
    texts["task"] = clean(item.name, 60)
    texts["state"] = "slow" if item.is_folded and mark.rank == SLOW else clean(mark.state, 20)
    styles = dict.fromkeys(("pid", "address", "age"), "dim")
    styles["task"] = task_style(tasks[0].task) + (" reverse" if selected else "")
    styles["state"] = _state_style(mark)
    if table.quiet_s.get(tasks[0].task) and not item.is_folded:
        styles["age"] = styles[LAST_LINE] = "yellow"
    elif mark.needs_attention:
        styles[LAST_LINE] = "red" if mark.rank < CUT else "yellow"
    if mark.needs_attention and mark.rank != SLOW and mark.why and columns[-1].name != LAST_LINE:
        return _reason_row(mark, columns, texts, styles, width)
    return _build_row(columns, texts, styles)


def host_row(host: HostProgress, columns: Sequence[Column]) -> Row:
    """Return the row of a host, with its connection and its transfers. Such rows are shown before
    the run has a plan."""
    texts = {"task": "-", "host": clean(host.host, 64), "state": clean(host.state, 40)}
    texts[LAST_LINE] = _transfers_text(host) or clean(host.text or "")
    return _build_row(columns, texts, {"state": _HOST_STYLES.get(host.state, "")})


def _transfers_text(host: HostProgress) -> str:
    """Return the running transfers of a host, 'code, 12 MB of 60 MB, 5.0 MB/s, 9.6 s left'. If no
    transfer is running, return 'all sent' or ''."""
    if not host.active_transfers_to_host:
        return "all sent" if host.synced else ""
    names = [clean(transfer.what, 40) for transfer in host.active_transfers_to_host]
    return ", ".join([*names, format_transfer(sum_transfers(host.active_transfers_to_host))])


def _gpu_text(progress: RunProgress, tasks: Sequence[TaskProgress]) -> str:
    """Return the load and the memory use of the GPUs, "87% 12 GB"."""
    return " ".join(each.cell_text(progress, tasks) for each in _GPU).strip()


def _cell_texts(
    table: TaskTable, task: TaskProgress, trouble: TaskTrouble, metrics_width: int
) -> dict[str, str]:
    progress, host = table.progress, table.progress.hosts.get(task.host)
    quiet_s = table.quiet_s.get(task.task)
    texts = {name: each.cell_text(progress, [task]) for name, each in _FIGURES.items()}
    if progress.health(task):
        texts["steps/s"] = ""
    elif quiet_s is not None:
        texts["steps/s"] = "0"
    gpus = f"gpu {','.join(map(str, task.gpus))}" if task.gpus else ""
    texts |= {
        "host": clean(task.host, 64),
        "gpu": _gpu_text(progress, [task]) or gpus,
        TREND: _sparkline(table, task.task, LOSS),
        METRICS: _metrics_text(table, task, metrics_width),
        "address": clean(task.address, 64),
        LAST_LINE: _last_line_text(table, task, trouble),
    }
    if task.state in ("starting", "running"):
        texts["pid"] = str(task.pid or "")
        texts["net"] = (
            f"{format_bytes(host.traffic)}/s" if host and host.traffic is not None else ""
        )
        texts["age"] = "" if task.last_time is None else _format_age(quiet_s or 0.0)
    return texts


def _folded_cell_texts(
    progress: RunProgress, tasks: Sequence[TaskProgress], trouble: TaskTrouble
) -> dict[str, str]:
    """Return the cells of a row that stands for several tasks: the highest step, the sum of
    restarts, and the medians of the other numbers."""
    hosts = map(progress.find_or_add_host, {task.host for task in tasks})
    moving = [transfer for host in hosts for transfer in host.active_transfers_to_host]
    alike = f"{len(tasks)} tasks alike: highest step, medians of other figures; Enter shows each"
    return {
        **{name: each.cell_text(progress, tasks) for name, each in _FIGURES.items()},
        "host": clean(_host_text(progress, (task.task for task in tasks)), 64),
        "gpu": _gpu_text(progress, tasks),
        LAST_LINE: clean(trouble.why)
        or (format_transfer(sum_transfers(moving), " sent") if moving else alike),
    }


def _host_text(progress: RunProgress, names: Iterable[str]) -> str:
    """Return the name of the host if all tasks in `names` are on one host, else the number of their
    hosts."""
    hosts = {progress.tasks[name].host for name in names}
    return next(iter(hosts)) if len(hosts) == 1 else format_count(len(hosts), "host")


def _state_style(trouble: TaskTrouble) -> str:
    if trouble.rank < CUT:
        return "bold red"
    if trouble.rank == DONE and trouble.state != "succeeded":
        return "yellow"
    return _STATE_STYLES.get(trouble.rank, "bold yellow" if trouble.needs_attention else "green")


def _metrics_text(table: TaskTable, task: TaskProgress, room: int) -> str:
    """Return the metrics of a task, 'accuracy 0.91 ▁▃▆█, lr 0.001 █▆▃▁': as many metrics as fit
    into `room` columns, but at least one."""
    shown, values = "", task.measures.newest_values
    for name in table.metrics if room else ():
        if has_value_to_show(name, values.get(name), table.progress.job_metrics):
            value = f"{clean(metric_label(name), 40)} {format_number(values[name])}"
            each = f"{value} {_sparkline(table, task.task, name)}".rstrip()
            longer = f"{shown}, {each}" if shown else each
            if len(longer) > room and shown:
                break
            shown = longer
    return shown


def _sparkline(table: TaskTable, task: str, name: str) -> str:
    trend = table.trends.trend(task, name)
    return draw_sparkline(trend.values, _SPARK, unicode=table.unicode) if trend else ""


def _reason_row(
    trouble: TaskTrouble,
    columns: Sequence[Column],
    text_by_column: Mapping[str, str],
    styles: Mapping[str, str],
    width: int,
) -> Row:
    """Return the row of a task in trouble, for a table without the column of last lines.

    The reason of the trouble replaces the numbers. If the task was restarted and runs again, its
    numbers stay, and the reason follows them if there is room."""
    runs_again = trouble.state == RESTARTED
    head = [each for each in columns if each.name in (_WITH_WHY if runs_again else _NAMES)]
    free_columns = width - sum(each.width + 1 for each in head)
    if runs_again and free_columns < _LAST_LINE_WIDTH:
        return _build_row(columns, text_by_column, styles)
    why = pad_or_cut(clean(trouble.why), max(0, free_columns))
    return [*_build_row(head, text_by_column, styles), Span(" "), Span(why, styles[LAST_LINE])]


def _build_row(
    columns: Sequence[Column], text_by_column: Mapping[str, str], styles: Mapping[str, str]
) -> Row:
    row: Row = []
    for name, width in columns:
        text = pad_or_cut(text_by_column.get(name, ""), width, align_right=name in _RIGHT)
        row += [Span(" "), Span(text, styles.get(name, ""))]
    return row[1:]


def _last_line_text(table: TaskTable, task: TaskProgress, trouble: TaskTrouble) -> str:
    quiet_s = table.quiet_s.get(task.task)
    if quiet_s is not None and not trouble.needs_attention:
        return f"(quiet {format_duration(quiet_s)}) {clean(task.last_line, 512)}"
    if trouble.why:
        return clean(trouble.why)
    if task.restarts:
        return clean(f"{last_restart_cause(table.progress, task)} | {task.last_line}", 512)
    if task.lines:
        return clean(task.last_line, 512)
    host = table.progress.hosts.get(task.host)
    return _transfers_text(host) if host else ""


def _format_age(seconds: float) -> str:
    """Return a number of seconds as text: 'now', '12s', '5m', '3h'."""
    if seconds < 2:
        return "now"
    if seconds < 100:
        return f"{seconds:.0f}s"
    return f"{seconds / 60:.0f}m" if seconds < 6000 else f"{seconds / 3600:.0f}h"
