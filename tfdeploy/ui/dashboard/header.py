"""Compose the first rows of every page: a row that sums up the run, then the cause of its failure
or the steps of its launch. The functions are pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from tfdeploy.model.progress.run_progress import STEPS, RunCompletion, RunProgress, run_completion
from tfdeploy.model.progress.task_progress import sum_transfers
from tfdeploy.model.progress.trends import DONE, RUN, Trends
from tfdeploy.model.progress.trouble import RESTARTED, SLOW, TaskTrouble
from tfdeploy.text.row_values import run_seconds, short_error
from tfdeploy.ui.amounts import format_duration, format_number, format_transfer
from tfdeploy.ui.cells import Row, Span
from tfdeploy.ui.dashboard.scene import Frame
from tfdeploy.ui.sanitise import clean
from tfdeploy.ui.tables import cell_width
from tfdeploy.ui.terminal import run_style

_STEP_STYLES = {"done": "green", "begin": "bold yellow", "failed": "bold red"}
# The remaining time of the run is estimated from its progress in the last _LEFT_OVER_S seconds.
_LEFT_OVER_S = 300.0
_AWAY = ("unreachable", "failed")


def head_row(frame: Frame) -> Row:
    """Return the row that sums up the run, with as many parts as fit.

    Each part has a priority, of which 0 is the highest. Parts are added in the order of their
    priorities, and a part that does not fit is left out. The state and the duration of the run have
    priority 0 and are never left out."""
    progress, marks = frame.scene.progress, frame.troubles
    plan, done = progress.plan, run_completion(progress)
    away = sum(host.state in _AWAY for host in progress.hosts.values())
    hosts = f"  {len(progress.hosts) - away}/{len(progress.hosts)} hosts up"
    lasted = run_seconds(progress.started, progress.ended, frame.now)
    state = "failing" if progress.cause and not progress.is_final else progress.state
    # The id of a run without --name begins with the job's name. The row shows this name already, so
    # the name is removed from the id.
    run = f"  {clean(progress.run or '')}".removeprefix(f"  {clean(plan.job)}" if plan else "")
    parts = [
        (0, Span(state, run_style(state))),
        (0, Span(f" {format_duration(lasted) if lasted >= 60 else f'{round(lasted)} s'}")),
        (1, Span(f"  {clean(plan.job)}" if plan else "", "bold")),
        (4, Span(run, "dim")),
        (7, Span(f"  {clean(plan.mode)}" if plan else "")),
        (
            2,
            Span(
                _state_counts(marks),
                _trouble_style(any(mark.needs_attention for mark in marks.values())),
            ),
        ),
        (2 if away else 6, Span(hosts if progress.hosts else "", _trouble_style(away))),
        (4, Span(_rate_text(progress, frame.scene.silent_tasks), "dim")),
        (5, Span(f"  {done.text}" if done else "", "dim")),
        (3, Span(_remaining_time(progress, done, frame.scene.trends), "bold")),
    ]
    shown, room = [], frame.width
    for part in sorted(parts, key=lambda part: part[0]):
        width = cell_width(part[1].text)
        if width <= room or not part[0]:
            shown.append(part)
            room -= width
    return [part[1] for part in parts if part in shown and part[1].text.strip()]


def cause_rows(frame: Frame) -> list[Row]:
    """Return the rows about the run's failure. The first row has, in red, the cause and the last
    line of the task that died first. The second row has the command that shows that task's log."""
    progress = frame.scene.progress
    death = progress.first_death
    row = [Span(clean(progress.cause or ""), "bold red")]
    if death and short_error(death.last_line) not in (progress.cause or ""):
        row.append(Span(f"  {short_error(clean(death.last_line, 512))}", "red"))
    if frame.height < 10:
        return [row]
    task = f" --task {clean(death.task, 40)}" if death else ""
    command = frame.scene.add_options(f"`tfdeploy logs {clean(progress.run or '')}{task} -n 50`")
    return [row, [Span("look: ", "dim"), Span(command, "bold")]]


def steps_row(progress: RunProgress) -> Row:
    """Return a row with the steps of a launch and the progress of its transfers."""
    row: Row = []
    for name in STEPS:
        state = progress.steps.get(name, "")
        text = f"{name}{'...' if state == 'begin' else ''} "
        row.append(Span(text, _STEP_STYLES.get(state, "dim")))
    moving = [
        transfer for host in progress.hosts.values() for transfer in host.active_transfers_to_host
    ]
    return [*row, Span(f" {format_transfer(sum_transfers(moving))}")] if moving else row


def _state_counts(troubles: Mapping[str, TaskTrouble]) -> str:
    """Return how many tasks are in each state: '6/8 running, 1 stalled, 1 slow'; "" if there are no
    tasks."""
    if not troubles:
        return ""
    kinds = Counter(
        "slow" if mark.rank == SLOW else mark.state.partition(":")[0] for mark in troubles.values()
    )
    up = kinds["running"] + kinds["slow"] + kinds[RESTARTED]
    others = [
        f"{count} {kind}"
        for kind, count in sorted(kinds.items())
        if kind not in ("running", "starting", "pending")
    ]
    return "  " + ", ".join([f"{up}/{len(troubles)} running", *others])


def _trouble_style(has_trouble: float) -> str:
    return "bold yellow" if has_trouble else "dim"


def _rate_text(progress: RunProgress, silent: Collection[str]) -> str:
    """Return the training rate of the run as text. If all tasks share one step counter, this is the
    rate of that counter, which no row of a task shows. Otherwise it is the rate of the first task
    that decides the run's result."""
    rate = None if progress.is_final else progress.run_steps_per_s(silent)
    if rate is None:
        return ""
    return f"  {format_number(rate, 3)} steps/s{' in all' if progress.shares_step else ''}"


def _remaining_time(progress: RunProgress, done: RunCompletion | None, trends: Trends) -> str:
    trend = trends.trend(RUN, DONE)
    if progress.is_final or trend is None or done is None or done.fraction >= 1:
        return ""
    slope = trend.slope(_LEFT_OVER_S)
    return f"  {format_duration((1 - done.fraction) / slope)} left" if slope and slope > 0 else ""
