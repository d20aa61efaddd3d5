"""Write the summary of a run in plain lines: its state, the cause of its failure, the files that it
left outside the folders that the job file's `keep` names, and what to type next."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tfdeploy.model.answers.samples import labelled_values
from tfdeploy.model.progress.run_progress import RunProgress
from tfdeploy.text.row_values import run_seconds
from tfdeploy.ui.amounts import format_duration, format_number
from tfdeploy.ui.reports import show_left_files
from tfdeploy.ui.sanitise import clean
from tfdeploy.ui.terminal import Terminal, run_style

# The summary shows at most this many lines from the end of the log of the task that died first.
LAST_LINES = 12


def show_summary(
    terminal: Terminal,
    progress: RunProgress,
    last_lines: Sequence[str] = (),
    *,
    now: float,
    add_options: Callable[[str], str] = str,
) -> None:
    """Write the summary of the run. Write nothing for a run without an id.

    `last_lines`: the last lines of the task that died first. `now`: UTC seconds, for the duration
    of a run that has not ended. `add_options`: adds the operator's own options, such as `-i FILE`,
    to a command that is shown, so that the operator can type this command."""
    if progress.run is None:
        return
    run = clean(progress.run)
    lasted = run_seconds(progress.started, progress.ended, now)
    after = (
        f" {'after' if progress.is_final else 'for'} {format_duration(lasted)}"
        if lasted > 0
        else ""
    )
    terminal.write(
        f"run {run} {terminal.paint(progress.state, run_style(progress.state))}{after}\n"
    )
    if progress.cause:
        terminal.write(f"{terminal.paint('cause:', 'bold red')} {clean(progress.cause)}\n")
        for line in last_lines[-LAST_LINES:]:
            terminal.write(f"  | {clean(line, 300)}\n")
    for task in progress.tasks.values() if progress.state == "succeeded" else ():
        if task.deciding and task.step is not None:
            loss = {} if task.loss is None else {"loss": task.loss}
            values = labelled_values(task.measures.newest_values, progress.job_metrics)
            figures = [
                f"{name} {format_number(value)}" for name, value in {**loss, **values}.items()
            ]
            line = ", ".join([f"{task.task}@{task.host}: step {task.step}", *figures])
            terminal.write(f"  {clean(line)}\n")
    show_left_files(terminal, progress.left_files, progress.plan.cwd if progress.plan else "")
    for command in _next_commands(progress, run):
        terminal.write(f"  next: {add_options(command)}\n")


def _next_commands(progress: RunProgress, run: str) -> list[str]:
    death = progress.first_death
    if death is not None:
        return [
            f"`tfdeploy logs {run} --task {clean(death.task)} -n 100`",
            f"`tfdeploy status {run}`",
        ]
    if progress.is_final:
        fetch = [f"`tfdeploy fetch {run}`"] if progress.state == "succeeded" else []
        return [*fetch, f"`tfdeploy logs {run}`"]
    if progress.state == "starting":
        return [f"`tfdeploy status {run}`"]
    return commands_for_running(run)


def commands_for_running(run: str) -> list[str]:
    """Return what an operator may type next about a run that is running."""
    return [
        f"`tfdeploy status --watch {run}`",
        f"`tfdeploy logs -f {run}`",
        f"`tfdeploy stop {run}`",
    ]
