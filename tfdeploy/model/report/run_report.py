"""Hold all that a report shows about one run, and build one table of its samples for spreadsheets:
a row for each task and time. The functions are pure: operations/report.py collects the values, and
ui/report/ draws them."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from tfdeploy.agent.metric_names import sort_metrics
from tfdeploy.agent.metric_patterns import OTHER_STEPS
from tfdeploy.model.answers.samples import SHOWN_APART, STANDARD_METRICS, GpuSample, TaskSample
from tfdeploy.model.events import Event
from tfdeploy.model.plan import Plan
from tfdeploy.model.status.run_status import RunView
from tfdeploy.model.status.task_status import Attempt as Attempt
from tfdeploy.model.status.task_status import (
    Samples,
    combine_gpu_use,
    merge_event_into_attempt,
    merge_recorded_attempts,
    merge_status_into_attempt,
    with_inferred_end,
)
from tfdeploy.text.names import group_by_key
from tfdeploy.text.row_values import copy_fields, iso_z

RATE_S = 30.0  # steps per second are averaged over at least this time
# a curve as pieces with gaps between them; each piece is a tuple of (time, value)
CurvePieces = tuple[tuple[tuple[float, float], ...], ...]


class LastLine(NamedTuple):
    """One of the last lines of the task whose death came first. `time`: UTC seconds."""

    time: float
    text: str


@dataclass(frozen=True, kw_only=True)
class RunReport(Samples):
    """The report. `made`: UTC seconds. `events`: the events that this machine recorded; empty if
    another machine launched the run. `errors`: hosts that sent no samples."""

    plan: Plan
    view: RunView
    made: float
    events: tuple[Event, ...] = ()
    last_lines: tuple[LastLine, ...] = ()


class ChartLine(NamedTuple):
    """One curve of points (seconds since the run began, value), in pieces with gaps between them. A
    task's curve has a piece for each attempt."""

    name: str
    pieces: CurvePieces

    @property
    def last(self) -> float | None:
        return self.pieces[-1][-1][1] if self.pieces else None


class Chart(NamedTuple):
    """One chart. `unit`: "", "cores", "bytes", "%", "/s"."""

    name: str
    unit: str
    lines: tuple[ChartLine, ...]


_MOVED = ("received", "sent", "read", "written")


def report_charts(report: RunReport) -> list[Chart]:
    """Return the charts: step rate, loss, the other metrics, the use of resources by tasks, GPUs
    and hosts. A chart whose values are all zero is left out."""
    began = report.view.started

    def used(of: Callable[[TaskSample], float | None]) -> tuple[ChartLine, ...]:
        return _lines_per_task(
            report, lambda rows: pieces_of((row.attempt, row.time - began, of(row)) for row in rows)
        )

    def printed(name: str) -> tuple[ChartLine, ...]:
        return used(lambda row: row.printed.get(name))

    names = {name for rows in report.tasks.values() for row in rows for name in row.printed}
    other_metrics = sort_metrics(sorted(names - STANDARD_METRICS), report.view.job_metrics)
    all_curves = [
        Chart("steps/s", "/s", _lines_per_task(report, lambda rows: _step_rates(rows, began))),
        *(Chart(name, "", printed(name)) for name in ("loss", *other_metrics)),
        Chart("CPU", "cores", used(lambda row: row.cpu)),
        Chart("memory", "bytes", used(lambda row: row.memory)),
        Chart("GPU", "%", _lines_by_task_and_gpu(report, began, lambda gpu: gpu.busy)),
        Chart(
            "GPU memory", "bytes", _lines_by_task_and_gpu(report, began, lambda gpu: gpu.used_bytes)
        ),
        Chart("hosts: CPU", "cores", _host_lines(report, began, "cpu")),
        *(Chart(f"hosts: {name}", "bytes/s", _host_lines(report, began, name)) for name in _MOVED),
    ]
    return [
        chart
        for chart in all_curves
        if any(value for line in chart.lines for piece in line.pieces for _, value in piece)
    ]


def _lines_per_task(
    report: RunReport, pieces: Callable[[list[TaskSample]], CurvePieces]
) -> tuple[ChartLine, ...]:
    lines = ((task.task, pieces(report.tasks.get(task.task, []))) for task in report.view.tasks)
    return tuple(ChartLine(name, task_lines) for name, task_lines in lines if task_lines)


def pieces_of(points: Iterable[tuple[int, float, float | None]]) -> CurvePieces:
    """Split a curve into one piece for each attempt. Each piece has the attempt's points as (time,
    value). `points`: (attempt, time, value). A point whose value is None is left out."""
    known = (
        (attempt, (time, float(value))) for attempt, time, value in points if value is not None
    )
    return tuple(map(tuple, group_by_key(known).values()))


def _step_rates(rows: list[TaskSample], began: float) -> CurvePieces:
    points: list[tuple[int, float, float]] = []
    last: dict[int, tuple[float, float]] = {}
    counts: Counter[int] = Counter()
    for row in rows:
        if (step := row.printed.get("step")) is None:
            continue
        time, before = last.get(row.attempt, (row.time, step))
        passed = row.time - time
        if step >= before and passed > 0 and (passed >= RATE_S or counts[row.attempt] < 2):
            points.append((row.attempt, row.time - began, (step - before) / passed))
            counts[row.attempt] += 1
        elif step >= before and row.attempt in last:
            continue
        last[row.attempt] = row.time, step
    return pieces_of(points)


def _lines_by_task_and_gpu(
    report: RunReport, began: float, value: Callable[[GpuSample], float | None]
) -> tuple[ChartLine, ...]:
    """Return one curve for each GPU of each task."""
    return _single_piece_lines(
        (
            f"{task.task} GPU {number}",
            [
                (row.time - began, value(gpu))
                for row in report.hosts.get(task.host, [])
                for gpu in row.gpus
                if gpu.number == number
            ],
        )
        for task in report.view.tasks
        for number in task.gpus
    )


def _host_lines(report: RunReport, began: float, name: str) -> tuple[ChartLine, ...]:
    return _single_piece_lines(
        (
            host,
            [(row.time - began, row.cpu if name == "cpu" else row.rates.get(name)) for row in rows],
        )
        for host, rows in report.hosts.items()
    )


def _single_piece_lines(
    named: Iterable[tuple[str, list[tuple[float, float | None]]]],
) -> tuple[ChartLine, ...]:
    """Return one curve for each name that has points with a value. The curve has no gap at points
    without a value."""
    known = [
        (name, tuple((time, float(value)) for time, value in points if value is not None))
        for name, points in named
    ]
    return tuple(ChartLine(name, (points,)) for name, points in known if points)


def collect_attempts(report: RunReport) -> list[Attempt]:
    """Return all attempts that the events, the tasks' status and the hosts report. The status of a
    task shows only its newest attempt."""
    known_attempts: dict[tuple[str, int], Attempt] = {}
    for event in report.events:
        if event.kind == "task" and (attempt := merge_event_into_attempt(event, known_attempts)):
            known_attempts[attempt.task, attempt.number] = attempt
    for view in report.view.tasks:
        if view.attempt and view.started is not None:
            key = view.task, view.attempt
            attempt = copy_fields(Attempt, view, number=view.attempt, last_line="")
            known_attempts[key] = merge_status_into_attempt(known_attempts.get(key), attempt)
    merge_recorded_attempts(known_attempts, report.attempts)
    known_attempts = {
        key: with_inferred_end(each, known_attempts.get((each.task, each.number + 1)))
        for key, each in known_attempts.items()
    }
    order = {view.task: number for number, view in enumerate(report.view.tasks)}
    return sorted(
        known_attempts.values(), key=lambda each: (order.get(each.task, len(order)), each.number)
    )


# The first columns of the table of samples. Then come a column for each other metric, and the
# columns of AFTER.
BEFORE = ("time", "seconds", "task", "host", "attempt", *SHOWN_APART)
AFTER = ("cpu_cores", "memory_bytes", "gpu_percent", "gpu_memory_bytes")
# Each row of the table is one sample of a task. The row shows the use of the task's GPUs only if a
# sample of the host's GPUs was taken at most this many seconds before the task's sample.
OLDEST_GPU_S = 600.0
Cell = str | float | None


def sample_table(report: RunReport) -> tuple[list[str], list[list[Cell]]]:
    """Return (headers, rows sorted by time). The column `seconds` is the time since the run began.
    If a metric has the same name as another column, the header of its column is `metric NAME`."""
    left_out = {*SHOWN_APART, *(OTHER_STEPS.keys() - report.plan.metrics.keys())}
    printed_names = {name for rows in report.tasks.values() for row in rows for name in row.printed}
    names = sorted(printed_names - left_out)
    headers = [
        *BEFORE,
        *(f"metric {name}" if name in (*BEFORE, *AFTER) else name for name in names),
        *AFTER,
    ]
    timed_rows: list[tuple[float, list[Cell]]] = []
    for task in report.view.tasks:
        host_samples = report.hosts.get(task.host, [])
        times = [sample.time for sample in host_samples]
        for row in report.tasks.get(task.task, []):
            index = bisect_right(times, row.time) - 1
            is_fresh = index >= 0 and row.time - times[index] <= OLDEST_GPU_S
            newest = host_samples[index].gpus if is_fresh else []
            gpus = combine_gpu_use(
                (gpu.busy, gpu.used_bytes) for gpu in newest if gpu.number in task.gpus
            )
            cells = [
                iso_z(row.time),
                round(row.time - report.view.started, 3),
                task.task,
                task.host,
                row.attempt,
                *map(row.printed.get, (*SHOWN_APART, *names)),
                row.cpu,
                row.memory,
                *gpus,
            ]
            timed_rows.append((row.time, cells))
    return headers, [cells for _, cells in sorted(timed_rows, key=lambda each: each[0])]
