"""Compose the page of the run's curves: loss, rate and all other metrics, then the CPU, GPU and
memory use of its tasks. The functions are pure."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tfdeploy.model.answers.samples import sort_metrics
from tfdeploy.model.progress.run_progress import RunProgress
from tfdeploy.model.progress.trends import LOSS, PACE, RATE, RUN, STEP, USES, Trends
from tfdeploy.ui.cells import Row, Span, task_style
from tfdeploy.ui.dashboard.scene import Frame
from tfdeploy.ui.dashboard.task_page import side_by_side
from tfdeploy.ui.plots import TITLES, UNITS, Curve, draw_plot, format_value
from tfdeploy.ui.sanitise import clean
from tfdeploy.ui.tables import cell_width

# The maximum number of curves in one plot.
MOST_CURVES = 8


def curves_page(frame: Frame, height: int) -> list[Row]:
    """Return the plots of the page. Each plot is low enough that two plots fit into `height` rows.
    The curves of the tasks with the worst problems are drawn on top of all other curves, and the
    names of these tasks come first in the titles."""
    scene = frame.scene
    rows = max(5, min(14, (height - 6) // 2 - 1))
    worst = sorted(frame.shown, key=lambda name: frame.troubles[name].rank)
    boxes = []
    for name in _plotted_metrics(scene.progress, scene.trends):
        curves, left_out = _curves(scene.trends, worst, name)
        if curves:
            boxes.append(partial(_plot_box, name, curves, left_out, rows, scene.unicode))
    return side_by_side(boxes, frame.width) or [
        [Span("no curves yet: a curve needs two values of a metric", "dim")]
    ]


def _plot_box(
    name: str, curves: list[Curve], left_out: int, rows: int, unicode: bool, width: int
) -> list[Row]:
    return [
        _title(name, curves, left_out, width),
        *draw_plot(curves[::-1], width, rows, unit=UNITS.get(name, ""), unicode=unicode),
    ]


def _plotted_metrics(progress: RunProgress, trends: Trends) -> list[str]:
    metric_names = (
        name
        for task in progress.tasks
        for name in trends.printed.get(task, {})
        if name not in (STEP, LOSS)
    )
    own_metrics = sort_metrics(dict.fromkeys(metric_names), progress.job_metrics)
    return list(
        dict.fromkeys([LOSS, RATE, PACE, *own_metrics, "gpu", "cpu", "gpu memory", "memory"])
    )


def _curves(trends: Trends, shown_tasks: Sequence[str], name: str) -> tuple[list[Curve], int]:
    """Return the curves of the metric `name`, and how many curves are left out. The metric RATE has
    one curve for the whole run; every other metric has one curve for each task."""
    if name == RATE:
        trend = trends.trend(RUN, name)
        return (
            ([Curve("", trend.points, "cyan")], 0) if trend and len(trend.times) >= 2 else ([], 0)
        )
    by_task = trends.used if name in (PACE, *USES) else trends.printed
    curves = [
        Curve(task, trend.points, task_style(task))
        for task in shown_tasks
        if (trend := by_task.get(task, {}).get(name)) and len(trend.times) >= 2
    ]
    return curves[:MOST_CURVES], max(0, len(curves) - MOST_CURVES)


def _title(name: str, curves: Sequence[Curve], left_out: int, width: int) -> Row:
    """Return the title of a plot, with the names of as many curves as fit into `width` columns.
    `left_out`: how many curves are not drawn."""
    row = [Span(clean(TITLES.get(name, name), 60), "bold")]
    free_columns = width - cell_width(row[0].text) - len("  +99 more")
    unnamed = left_out
    for curve in curves:
        text = f"  {clean(curve.name, 40)} {format_value(curve.points[-1][1], UNITS.get(name, ''))}"
        free_columns -= cell_width(text)
        if free_columns < 0:
            unnamed += 1
        else:
            row.append(Span(text, curve.style))
    return [*row, Span(f"  +{unnamed} more" if unnamed else "", "dim")]
