"""`tfdeploy logs`: the merged logs of a run, on stdout."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from tfdeploy.cli.flags import OfRun, finish_parser
from tfdeploy.cli.options import duration
from tfdeploy.errors import UsageError
from tfdeploy.model.patterns import compiled

if TYPE_CHECKING:
    from tfdeploy.errors import TfdeployError
    from tfdeploy.model.plan import Plan
    from tfdeploy.operations.tasklogs.task_log import LogQuery


@dataclass(frozen=True, kw_only=True)
class Flags(OfRun):
    follow: bool = False
    lines: int | None = None
    since: float | None = None
    task: Sequence[str] | None = None
    host: Sequence[str] | None = None
    grep: str | None = None
    timestamps: bool = False
    output: Literal["text", "json", "raw"] = "text"


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser("logs", help="merged logs of a run", description="The merged logs of a run: task@host | line.")
    parser.add_argument("wanted", nargs="?", metavar="RUN", help="id or unique prefix (default: the newest of this job)")
    parser.add_argument("-f", "--follow", action="store_true", help="go on until all tasks have ended")
    parser.add_argument("-n", "--lines", type=_count, metavar="N", help="only the last N lines of each task")
    parser.add_argument("--since", type=duration, metavar="5m", help="only lines of the last so long")
    parser.add_argument(
        "--task", action="append", metavar="TASK", help="only this task or role: worker:0, worker (again for more)"
    )
    parser.add_argument("--host", action="append", metavar="HOST", help="only tasks on this host (again for more)")
    parser.add_argument("--grep", metavar="RE", help="only lines that this regular expression finds")
    parser.add_argument("--timestamps", action="store_true", help="with the time (UTC) at which the host saw each line")
    parser.add_argument("--output", choices=("text", "json", "raw"), default="text", help="--json is the same as --output json")
    finish_parser(parser, Flags, run)


def run(flags: Flags) -> int:
    from tfdeploy.cli import context
    from tfdeploy.errors import worst
    from tfdeploy.operations.logs import followed_lines
    from tfdeploy.operations.tasklogs.stored_lines import stored_lines
    from tfdeploy.ui.amounts import in_bytes
    from tfdeploy.ui.log_lines import LinePrinter
    from tfdeploy.ui.terminal import terminal_of

    with context.open_fleet(flags) as fleet:
        plan, only, plan_code = context.chosen_run(flags, fleet)
        query = _query(flags, plan, only)
        context.show_unasked(flags, () if only is None else (host.host for host in plan.hosts if host.host not in only))
        lost: dict[str, TfdeployError] = {}
        gone: dict[str, int] = {}
        writer = LinePrinter(
            1,
            "json" if flags.json else flags.output,
            run=plan.run,
            labels=[f"{task.task}@{task.host}" for task in plan.tasks if task.task in query.tasks],
            timestamps=flags.timestamps,
            color=terminal_of(sys.stdout, flags.color).color,
        )
        lines = (followed_lines if flags.follow else stored_lines)(fleet, plan, query, lost, gone)
        complete = writer.write_all(lines, follow=flags.follow)
        context.show_errors(flags, lost, "no lines from here: ")
        for label, count in gone.items() if complete else ():
            print(
                f"[{label}] {in_bytes(count)} of this log are no longer there: rotated away (`logs: {{max: ...}}`)",
                file=sys.stderr,
            )
        return worst([plan_code, *(error.exit_code for error in lost.values())]) if complete else 0


def _query(flags: Flags, plan: Plan, only: Collection[str] | None) -> LogQuery:
    from tfdeploy.operations.tasklogs.task_log import LogQuery

    hosts = set(flags.host or (task.host for task in plan.tasks))
    if only is not None:
        hosts &= set(only)
    wanted = [task for task in plan.tasks if task.host in hosts and _is_wanted(task.task, task.role, flags.task)]
    if not wanted:
        raise UsageError(f"no task of {plan.run} fits", where="--task/--host", next=_offer(plan, flags))
    try:
        grep = compiled(os.fsencode(flags.grep)) if flags.grep else None
    except ValueError as error:
        raise UsageError(f"not a regular expression: {error}", where="--grep", next="see Python's re") from error
    since = time.time() - flags.since if flags.since is not None else None
    return LogQuery(tuple(task.task for task in wanted), since=since, last=flags.lines, grep=grep)


def _offer(plan: Plan, flags: Flags) -> str:
    """The nearest task, role or host that there is, and what there is."""
    import difflib

    names = {name: None for task in plan.tasks for name in (task.role, task.task, task.host)}
    asked = [name for words in flags.task or () for name in words.split(",")] + list(flags.host or ())
    near = [match for name in asked if name not in names for match in difflib.get_close_matches(name, names, n=1)]
    known = ", ".join(f"{task.task}@{task.host}" for task in plan.tasks[:12])
    return (f"did you mean {near[0]}? " if near else "") + f"there are {known}"


def _is_wanted(task: str, role: str, names: Sequence[str] | None) -> bool:
    return not names or any(task == name or role == name for words in names for name in words.split(","))


def _count(text: str) -> int:
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of lines")
    return int(text)
