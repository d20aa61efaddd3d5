"""The table of the dashboard: a row per task (per host while there are no tasks yet), as many columns as fit. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tfdeploy.model.progress import HostProgress, RunProgress, TaskProgress
from tfdeploy.model.transfers import all_of
from tfdeploy.model.words import outcome_words
from tfdeploy.ui.amounts import figure, in_bytes, in_seconds
from tfdeploy.ui.cells import Row, Span, column, task_style
from tfdeploy.ui.sanitise import clean

LAST_LINE = "last line"
_LAST_LINE_WIDTH = 20  # the least; other columns are dropped for it
METRICS = "metrics"
_METRICS_WIDTH, _FIGURE_WIDTH = 40, 9  # of the job's own metrics; of each value with its separators
_USES = ("cpu", "memory", "gpu")  # of a task; each is shown where one was measured
_RIGHT = frozenset({"step", "steps/s", "loss", "pid", "restarts", *_USES})
_DROPPED_FIRST = ("memory", "cpu", "gpus", "gpu", "pid", "restarts", METRICS, "loss", "steps/s", "step", LAST_LINE, "host")
_WIDTHS = {"state": 11, "step": 8, "steps/s": 7, "loss": 8, "pid": 7, "restarts": 8, "cpu": 5, "memory": 7, "gpu": 11}
_STATE_STYLES = {
    "running": "green",
    "succeeded": "bold green",
    "starting": "yellow",
    "connected": "green",
    "stopped": "yellow",
    "unreachable": "bold yellow",
    "stalled": "bold yellow",
    "failed": "bold red",
    "killed": "bold red",
    "gave up": "bold red",
    "lost": "bold red",
}


class Column(NamedTuple):
    name: str
    width: int


def columns(progress: RunProgress, width: int) -> list[Column]:
    """The columns that fit, in order; the last line gets the remaining width."""
    names = ["task", "host", "state", "step", "steps/s", "loss", METRICS, "pid", "gpus", "restarts", LAST_LINE]
    own = progress.own_metrics
    if not own:
        names.remove(METRICS)
    if progress.shares_step and all(progress.own_rate(task) is None for task in progress.tasks.values()):
        names.remove("steps/s")  # the run's rate is in the heading
    for use, measured in zip(_USES, _measured(progress), strict=True):
        if measured:
            names.insert(names.index(LAST_LINE), use)
    wide = dict(_WIDTHS)
    wide["task"] = _widest([*progress.tasks, "task"], 16)
    wide["host"] = _widest([*progress.hosts, *(t.host for t in progress.tasks.values()), "host"], 16)
    wide["gpus"] = _widest([_gpus(t) for t in progress.tasks.values()] + ["gpus"], 10)
    wide[METRICS] = min(_METRICS_WIDTH, sum(len(name) + _FIGURE_WIDTH for name in own))
    wide[LAST_LINE] = _LAST_LINE_WIDTH
    for name in (None, *_DROPPED_FIRST):
        if name in names:
            names.remove(name)
        used = sum(wide[n] + 1 for n in names) - 1
        if used <= width:
            break
    if LAST_LINE in names:
        wide[LAST_LINE] += width - used
    return [Column(name, wide[name]) for name in names]


def _measured(progress: RunProgress) -> tuple[bool, bool, bool]:
    tasks = progress.tasks.values()
    return (
        any(task.cpu is not None for task in tasks),
        any(task.memory is not None for task in tasks),
        any(progress.gpu_use(task) != (None, None) for task in tasks),
    )


def _gpu_words(busy: float | None, memory: int | None) -> str:
    """ "87% 12 GB"."""
    return " ".join(
        words for words in ("" if busy is None else f"{busy:.0f}%", "" if memory is None else in_bytes(memory)) if words
    )


def header_row(shown: list[Column]) -> Row:
    return [Span(" ".join(column(c.name, c.width, right=c.name in _RIGHT) for c in shown), "dim")]


def task_row(progress: RunProgress, task: TaskProgress, shown: list[Column], *, selected: bool, quiet_s: float | None) -> Row:
    """`quiet_s`: seconds since its last line, where that is to be shown."""
    values = task.measures.values()
    state = state_words(progress, task)
    texts = {
        "task": clean(task.task, 40),
        "host": clean(task.host, 64),
        "state": state,
        "step": figure(values.get("step"), 7),
        "steps/s": figure(None if progress.health(task) else progress.own_rate(task) if quiet_s is None else 0.0, 3),
        "loss": figure(values.get("loss")),
        METRICS: metrics_words({name: values[name] for name in progress.own_metrics if name in values}),
        "cpu": "" if task.cpu is None else f"{100 * task.cpu:.0f}%",
        "memory": in_bytes(task.memory) if task.memory is not None else "",
        "gpu": _gpu_words(*progress.gpu_use(task)),
        "pid": str(task.pid or "") if task.state in ("starting", "running") else "",
        "gpus": _gpus(task),
        "restarts": str(task.restarts) if task.restarts else "",
        LAST_LINE: _last_words(progress, task),
    }
    styles = {"task": task_style(task.task), "state": _STATE_STYLES.get(state.split(":")[0], ""), "loss": "", "pid": "dim"}
    row = _row(shown, texts, styles, selected=selected)
    if quiet_s is not None and shown[-1].name == LAST_LINE:
        width = shown[-1].width
        row[-1] = Span(column(f"(quiet {in_seconds(quiet_s)}) {texts[LAST_LINE]}", width), "yellow")
    return row


def host_row(host: HostProgress, shown: list[Column]) -> Row:
    """Before there is a plan: what the host's connection and transfers do."""
    texts = {"task": "-", "host": clean(host.host, 64), "state": clean(host.state, 40), LAST_LINE: transfer_words(host)}
    if not texts[LAST_LINE]:
        texts[LAST_LINE] = clean(host.text or "")
    return _row(shown, texts, {"state": _STATE_STYLES.get(host.state, "")}, selected=False)


def metrics_words(values: Mapping[str, float]) -> str:
    """'accuracy 0.91, lr 0.001'."""
    return ", ".join(f"{clean(name, 40)} {figure(value)}" for name, value in values.items())


def state_words(progress: RunProgress, task: TaskProgress) -> str:
    if health := progress.health(task):
        return health
    if task.outcome:
        return outcome_words(task.outcome, task.exit_code, task.signal)
    return clean(task.state, 20)


def transfer_words(host: HostProgress) -> str:
    """'code, 12 MB of 60 MB, 5.0 MB/s, 9.6 s left', while something moves."""
    active = [transfer for transfer in host.transfers.values() if transfer.active]
    if not active:
        return "all sent" if host.synced else ""
    sent, total, rate, left_s = all_of(active)
    words = [", ".join(clean(transfer.what, 40) for transfer in active), f"{in_bytes(sent)} of {in_bytes(total)}"]
    words += [f"{in_bytes(rate)}/s"] if rate else []
    words += [f"{in_seconds(left_s)} left"] if left_s is not None else []
    return ", ".join(words)


def _row(shown: list[Column], texts: dict[str, str], styles: dict[str, str], *, selected: bool) -> Row:
    row: Row = []
    for index, (name, width) in enumerate(shown):
        style = styles.get(name, "")
        if selected and name == "task":
            style = f"{style} reverse".strip()
        if index:
            row.append(Span(" "))
        row.append(Span(column(texts.get(name, ""), width, right=name in _RIGHT), style))
    return row


def _last_words(progress: RunProgress, task: TaskProgress) -> str:
    why = task.reason or progress.stalled_because(task)
    if why:
        return clean(why)
    if task.lines:
        return clean(task.last_line, 512)
    host = progress.hosts.get(task.host)
    return transfer_words(host) if host else ""


def _gpus(task: TaskProgress) -> str:
    return ",".join(map(str, task.gpus))


def _widest(texts: list[str], limit: int) -> int:
    return min(limit, max(map(len, texts)))
