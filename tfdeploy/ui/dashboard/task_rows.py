"""The table of the dashboard: a row per task (per host while there are no tasks yet), as many columns as fit. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from statistics import median
from typing import NamedTuple

from tfdeploy.model import table_metrics
from tfdeploy.model.measures import PRINTED_RATE
from tfdeploy.model.progress import HostProgress, RunProgress
from tfdeploy.model.task_progress import TaskProgress
from tfdeploy.model.transfers import all_of
from tfdeploy.model.trends import LOSS, Trends
from tfdeploy.model.trouble import AGAIN, CUT, DONE, RESTARTED, SLOW, STARTING, Mark, last_cause
from tfdeploy.ui.amounts import count, figure, in_bytes, in_seconds, transferred
from tfdeploy.ui.cells import Row, Span, column, task_style
from tfdeploy.ui.dashboard.row_order import Item
from tfdeploy.ui.plots import spark
from tfdeploy.ui.sanitise import clean

LAST_LINE = "last line"
_LAST_LINE_WIDTH = 20  # the least
METRICS = "metrics"
TREND = "trend"  # of the loss
_METRICS_WIDTH, _FIGURE_WIDTH, _SPARK = 26, 9, 8  # of all metrics, at least; of a value with its separators; of a curve
_RIGHT = frozenset({"step", "steps/s", "loss", "pid", "restarts", "cpu", "memory", "net", "gpu", "age"})
_BEFORE = ("task", "state", "host", "gpu", "cpu", "memory", "net", "step", "steps/s", "loss", TREND, METRICS)
_NAMES = ("task", "state", "host")
_FIGURES = (*_NAMES, "gpu", "cpu", "step", "steps/s", "loss")
ORDER = (*_BEFORE, "restarts", "age", "address", "pid", LAST_LINE)
_FALL_FIRST = (
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
_WIDTHS = {
    "state": 11,
    "step": 8,
    "steps/s": 7,
    "loss": 8,
    TREND: _SPARK,
    "pid": 7,
    "restarts": 8,
    "cpu": 5,
    "memory": 7,
    "net": 8,
    "gpu": 11,
    "age": 5,
}
_STATE_STYLES = {CUT: "bold yellow", AGAIN: "yellow", SLOW: "yellow", STARTING: "yellow", DONE: "green"}
_HOST_STYLES = {"connected": "green", "unreachable": "bold yellow", "failed": "bold red"}


class Column(NamedTuple):
    name: str
    width: int


@dataclass
class Table:
    """What the rows need beside the tasks. `quiet`: task -> seconds since its last line."""

    progress: RunProgress
    trends: Trends
    quiet: Mapping[str, float] = field(default_factory=dict)
    unicode: bool = True
    metrics: Sequence[str] = ()  # those of progress.own_metrics that tables show, which take long to find

    def __post_init__(self) -> None:
        progress = self.progress
        rated = any(progress.own_rate(task) is not None for task in progress.tasks.values())
        names = table_metrics.table_names(progress.own_metrics, progress.job_metrics)
        self.metrics = [name for name in names if not table_metrics.is_rate(name) or self._shows_rate(name, rated)]

    def _shows_rate(self, name: str, rated: bool) -> bool:
        """`rated`: the column steps/s has values, and shows global_step/sec."""
        if rated and name.endswith(PRINTED_RATE):
            return False
        values = (task.measures.values().get(name) for task in self.progress.tasks.values())
        return any(table_metrics.is_shown(name, value, self.progress.job_metrics) for value in values)


def columns(table: Table, items: Sequence[Item], width: int) -> list[Column]:
    """The columns that fit, in order; the last line gets the remaining width. It falls first."""
    progress = table.progress
    tasks = progress.tasks.values()
    wide = dict(_WIDTHS)
    wide["task"] = _widest([*(item.name for item in items), "task"], 24)
    wide["host"] = _widest([*(_host(progress, item.tasks) for item in items), *(() if items else progress.hosts), "host"], 16)
    wide["address"] = _widest([_address(progress, task.task) for task in tasks] + ["address"], 21)
    own = table.metrics
    need = sum(len(table_metrics.label(name)) + _FIGURE_WIDTH + _SPARK for name in own)
    wide[METRICS] = min(_METRICS_WIDTH, need)
    wide[LAST_LINE] = _LAST_LINE_WIDTH
    missing = _missing(table)
    names = [name for name in ORDER if name not in missing]
    for name in (None, LAST_LINE, *_FALL_FIRST):
        if name in names:
            names.remove(name)
        used = sum(wide[n] + 1 for n in names) - 1
        if used <= width:
            break
    left = max(0, width - used)
    if METRICS in names:
        more = min(left, need - wide[METRICS])
        wide[METRICS], left = wide[METRICS] + more, left - more
    if LAST_LINE in names:
        wide[LAST_LINE] += left
    return [Column(name, wide[name]) for name in names]


def _missing(table: Table) -> set[str]:
    """Columns of which no task has anything."""
    progress = table.progress
    tasks = progress.tasks.values()
    seen = {
        "cpu": any(task.cpu is not None for task in tasks),
        "memory": any(task.memory is not None for task in tasks),
        "net": any(host.traffic is not None for host in progress.hosts.values()),
        "gpu": any(task.gpus for task in tasks),
        "step": any(task.step is not None for task in tasks) or not tasks,
        "steps/s": any(progress.own_rate(task) is not None for task in tasks),
        "loss": any(task.loss is not None for task in tasks),
        "restarts": any(task.restarts for task in tasks),
        "age": any(task.lines for task in tasks),
        "pid": any(task.pid for task in tasks),
        "address": any(_address(progress, task.task) for task in tasks),
        METRICS: bool(table.metrics),
    }
    missing = {name for name, there in seen.items() if not there}
    return missing | ({TREND} if "loss" in missing else set())


def header_row(shown: Sequence[Column], *, sort: str = "") -> Row:
    names = [name for name, _ in shown]
    styles = {name: "dim underline" if name == sort else "dim" for name in names}
    return _row(shown, dict(zip(names, names, strict=True)), styles)


def item_row(table: Table, item: Item, shown: Sequence[Column], *, selected: bool, width: int) -> Row:
    """A task's row, or that of several that are alike."""
    progress = table.progress
    tasks = [progress.tasks[name] for name in item.tasks]
    room = next((each.width for each in shown if each.name == METRICS), 0)
    texts = _folded_texts(progress, tasks) if item.folded else _texts(table, tasks[0], item.mark, room)
    texts["task"], texts["state"] = clean(item.name, 60), clean(_state(item), 20)
    if item.folded and item.mark.why:
        texts[LAST_LINE] = clean(item.mark.why)
    name_style = task_style(tasks[0].task) + (" reverse" if selected else "")
    styles = {"task": name_style, "state": _state_style(item.mark)}
    styles |= dict.fromkeys(("pid", "address", "age"), "dim")
    if table.quiet.get(tasks[0].task) and not item.folded:
        styles["age"] = styles[LAST_LINE] = "yellow"
    elif item.mark.trouble:
        styles[LAST_LINE] = "red" if item.mark.rank < CUT else "yellow"
    if item.mark.trouble and item.mark.rank != SLOW and item.mark.why and shown[-1].name != LAST_LINE:
        return _why_row(item, shown, texts, styles, width)
    return _row(shown, texts, styles)


def host_row(host: HostProgress, shown: Sequence[Column]) -> Row:
    """Before there is a plan: what the host's connection and transfers do."""
    texts = {"task": "-", "host": clean(host.host, 64), "state": clean(host.state, 40), LAST_LINE: transfer_words(host)}
    if not texts[LAST_LINE]:
        texts[LAST_LINE] = clean(host.text or "")
    return _row(shown, texts, {"state": _HOST_STYLES.get(host.state, "")})


def transfer_words(host: HostProgress) -> str:
    """'code, 12 MB of 60 MB, 5.0 MB/s, 9.6 s left', while something moves."""
    if not host.moving:
        return "all sent" if host.synced else ""
    names = [clean(transfer.what, 40) for transfer in host.moving]
    return ", ".join([*names, transferred(all_of(host.moving))])


def gpu_words(busy: float | None, memory: float | None) -> str:
    """ "87% 12 GB"."""
    return f"{_percent(busy)} {_bytes(memory)}".strip()


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.0f}%"


def _cores(cpu: float | None) -> str:
    """In percent of one core."""
    return "" if cpu is None else f"{100 * cpu:.0f}%"


def _bytes(count: float | None) -> str:
    return "" if count is None else in_bytes(int(count))


def _texts(table: Table, task: TaskProgress, mark: Mark, room: int) -> dict[str, str]:
    progress = table.progress
    values = task.measures.values()
    quiet_s = table.quiet.get(task.task)
    host = progress.hosts.get(task.host)
    lives = task.state in ("starting", "running")
    rate = None if progress.health(task) else progress.own_rate(task) if quiet_s is None else 0.0
    return {
        "host": clean(task.host, 64),
        "step": figure(values.get("step"), 7),
        "steps/s": figure(rate, 3),
        "loss": figure(values.get("loss")),
        TREND: _spark(table, task.task, LOSS),
        METRICS: _metrics(table, task, values, room),
        "cpu": _cores(task.cpu),
        "memory": _bytes(task.memory),
        "net": f"{in_bytes(host.traffic)}/s" if host and host.traffic is not None and lives else "",
        "gpu": gpu_words(*progress.gpu_use(task)) or (f"gpu {_gpus(task)}" if task.gpus else ""),
        "pid": str(task.pid or "") if lives else "",
        "address": clean(_address(progress, task.task), 64),
        "restarts": str(task.restarts) if task.restarts else "",
        "age": "" if task.last_time is None or not lives else _age(quiet_s or 0.0),
        LAST_LINE: _last_words(table, task, mark),
    }


def _folded_texts(progress: RunProgress, tasks: Sequence[TaskProgress]) -> dict[str, str]:
    """The highest step, the sum of restarts, and medians of what else is a figure."""
    steps = [task.step for task in tasks if task.step is not None]
    busy, used = map(_middle, zip(*map(progress.gpu_use, tasks), strict=True))
    restarts = sum(task.restarts for task in tasks)
    hosts = {task.host for task in tasks}
    return {
        "host": clean(_host(progress, (task.task for task in tasks)), 64),
        "step": figure(max(steps, default=None), 7),
        "steps/s": figure(_middle(map(progress.own_rate, tasks)), 3),
        "loss": figure(_middle(task.loss for task in tasks), 3),
        "cpu": _cores(_middle(task.cpu for task in tasks)),
        "memory": _bytes(_middle(task.memory for task in tasks)),
        "gpu": gpu_words(busy, used),
        "restarts": str(restarts) if restarts else "",
        LAST_LINE: _sent_words(progress, hosts) or f"{len(tasks)} alike: the highest step, medians; Enter opens them",
    }


def _middle(values: Iterable[float | None]) -> float | None:
    """Return the median of the finite ones."""
    known = [value for value in values if value is not None and isfinite(value)]
    return median(known) if known else None


def _sent_words(progress: RunProgress, hosts: Collection[str]) -> str:
    """'36 MB of 180 MB', while something moves to these hosts."""
    moving = [transfer for host in hosts for transfer in progress.host(host).moving]
    return transferred(all_of(moving), " sent") if moving else ""


def _host(progress: RunProgress, names: Iterable[str]) -> str:
    """The host of these tasks, or how many they have."""
    hosts = {progress.tasks[name].host for name in names}
    return next(iter(hosts)) if len(hosts) == 1 else count(len(hosts), "host")


def _state(item: Item) -> str:
    return "slow" if item.folded and item.mark.rank == SLOW else item.mark.state


def _state_style(mark: Mark) -> str:
    if mark.rank < CUT:
        return "bold red"
    if mark.rank == DONE and mark.state != "succeeded":
        return "yellow"
    return _STATE_STYLES.get(mark.rank, "bold yellow" if mark.trouble else "green")


def _metrics(table: Table, task: TaskProgress, values: Mapping[str, float], room: int) -> str:
    """'accuracy 0.91 ▁▃▆█, lr 0.001 █▆▃▁', as many as there is room for."""
    words = ""
    for name in table.metrics if room else ():
        if table_metrics.is_shown(name, values.get(name), table.progress.job_metrics):
            each = f"{clean(table_metrics.label(name), 40)} {figure(values[name])} {_spark(table, task.task, name)}".rstrip()
            longer = f"{words}, {each}" if words else each
            if len(longer) > room and words:
                break
            words = longer
    return words


def _spark(table: Table, task: str, name: str) -> str:
    trend = table.trends.of(task, name)
    return spark(trend.values, _SPARK, unicode=table.unicode) if trend else ""


def _why_row(item: Item, shown: Sequence[Column], texts: Mapping[str, str], styles: Mapping[str, str], width: int) -> Row:
    """Return the row of a task in trouble, for a table without the column of last lines.

    What is wrong replaces the figures. A task that runs again keeps its figures, with what was wrong behind them if there
    is room.
    """
    runs_again = item.mark.state == RESTARTED
    head = [each for each in shown if each.name in (_FIGURES if runs_again else _NAMES)]
    used = sum(each.width + 1 for each in head)
    if runs_again and width - used < _LAST_LINE_WIDTH:
        return _row(shown, texts, styles)
    row = _row(head, texts, styles)
    return [*row, Span(" "), Span(column(clean(item.mark.why), max(0, width - used)), styles[LAST_LINE])]


def _row(shown: Sequence[Column], texts: Mapping[str, str], styles: Mapping[str, str]) -> Row:
    row: Row = []
    for name, width in shown:
        row += [Span(" ")] if row else []
        row.append(Span(column(texts.get(name, ""), width, right=name in _RIGHT), styles.get(name, "")))
    return row


def _last_words(table: Table, task: TaskProgress, mark: Mark) -> str:
    quiet_s = table.quiet.get(task.task)
    if quiet_s is not None and not mark.trouble:
        return f"(quiet {in_seconds(quiet_s)}) {clean(task.last_line, 512)}"
    if mark.why:
        return clean(mark.why)
    if task.restarts:
        return clean(f"{last_cause(table.progress, task)} | {task.last_line}", 512)
    if task.lines:
        return clean(task.last_line, 512)
    host = table.progress.hosts.get(task.host)
    return transfer_words(host) if host else ""


def _age(seconds: float) -> str:
    """'now', '12s', '5m', '3h'."""
    if seconds < 2:
        return "now"
    return f"{seconds:.0f}s" if seconds < 100 else f"{seconds / 60:.0f}m" if seconds < 6000 else f"{seconds / 3600:.0f}h"


def _address(progress: RunProgress, task: str) -> str:
    return progress.addresses.get(task, "")


def _gpus(task: TaskProgress) -> str:
    return ",".join(map(str, task.gpus))


def _widest(texts: list[str], limit: int) -> int:
    return min(limit, max(map(len, texts)))
