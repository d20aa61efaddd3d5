"""Build one table of a run's samples for spreadsheets: a row for each task and time. Pure."""

from __future__ import annotations

from bisect import bisect_right

from tfdeploy.agent.metric_patterns import OTHER_STEPS
from tfdeploy.model.answers.samples import SHOWN_APART
from tfdeploy.model.report.run_report import RunReport
from tfdeploy.model.row_values import iso_z
from tfdeploy.model.status.task_status import combine_gpu_use

# The first columns. A column for each other metric follows, then the columns of AFTER.
BEFORE = ("time", "seconds", "task", "host", "attempt", *SHOWN_APART)
AFTER = ("cpu_cores", "memory_bytes", "gpu_percent", "gpu_memory_bytes")
# In seconds. Each row is one sample of a task. A row shows the use of the task's GPUs only if a
# sample of the host's GPUs was taken at most this long before the task's sample.
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
