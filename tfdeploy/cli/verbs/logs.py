"""Run `tfdeploy logs`: print the merged logs of a run."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, AnyStr

from tfdeploy.cli.arguments.logs import Flags
from tfdeploy.cli.chosen_run import choose_run
from tfdeploy.cli.consent import make_confirm
from tfdeploy.cli.fleet import open_fleet
from tfdeploy.cli.messages import print_unselected_hosts, show_errors, unselected_host_names
from tfdeploy.cli.output import print_message
from tfdeploy.errors import Refused, UsageError, worst_exit_code
from tfdeploy.operations.logs import follow_lines
from tfdeploy.operations.tasklogs.attempts import newest_attempt_numbers
from tfdeploy.operations.tasklogs.fetched_logs import FetchedLogs
from tfdeploy.operations.tasklogs.stored_lines import stored_batches
from tfdeploy.operations.tasklogs.task_log import LogQuery
from tfdeploy.text.names import fold_names, group_by_key, match_names
from tfdeploy.text.user_regexes import compile_user_pattern
from tfdeploy.ui.amounts import format_bytes
from tfdeploy.ui.logs.log_lines import LinePrinter
from tfdeploy.ui.sanitise import clean

if TYPE_CHECKING:
    from tfdeploy.errors import TfdeployError
    from tfdeploy.model.plan import Plan
    from tfdeploy.transport.protocols import Fleet


def run(flags: Flags) -> int:
    unbound_query = make_query_without_tasks(flags)
    if flags.format == "raw" and sys.stdout.isatty() and not make_confirm(flags)(RAW_QUESTION):
        raise Refused(
            "raw bytes of programs are printed on a terminal only after you agree",
            where="--output raw",
            next="add -y, or write into a file or pipe",
        )
    with open_fleet(flags) as fleet:
        plan, only_hosts, plan_code = choose_run(flags, fleet)
        errors: dict[str, TfdeployError] = {}
        query = replace(unbound_query, tasks=select_tasks(flags, plan, only_hosts))
        query, follow = limit_query_to_attempts(flags, fleet, plan, query, errors)
        print_unselected_hosts(flags, unselected_host_names(plan, only_hosts))
        # {task@host: number of bytes of its log that were rotated away before they could be read}
        rotated_bytes: dict[str, int] = {}
        fetched = FetchedLogs(Path("fetched") / plan.run / "logs")
        printer = LinePrinter(
            1,
            flags.format,
            run=plan.run,
            labels=[f"{task.task}@{task.host}" for task in plan.tasks if task.task in query.tasks],
            timestamps=flags.timestamps,
            color=flags.out.color,
            highlight=_compile_patterns(flags, flags.highlight or (), "--highlight"),
            fold=flags.fold,
        )
        if follow:
            lines = follow_lines(fleet, plan, query, errors, rotated_bytes)
            complete = printer.write(([line] for line in lines), follow=True)
        else:
            batches = stored_batches(fleet, plan, query, errors, rotated_bytes, fetched)
            complete = printer.write(batches)
        if fetched.replaced_hosts and not flags.quiet:
            why = clean(next(iter(fetched.replaced_hosts.values())).what)
            print_message(
                f"{fold_names(fetched.replaced_hosts)}: these lines come from {fetched.folder}, as "
                f"of the last fetch: {why}"
            )
        show_errors(flags, errors, "no lines from this host: ")
        if not complete:
            return 0
        for label, size in rotated_bytes.items():
            print_message(
                f"[{label}] {format_bytes(size)} of this log are gone: removed by rotation (`logs: "
                f"{{max: ...}}`)"
            )
        return worst_exit_code([plan_code, *errors.values()])


RAW_QUESTION = (
    "The output of programs may contain control codes, which can change the title and the keys "
    "of your terminal and what you see. Continue?"
)


def _refuse_contradictions(flags: Flags) -> None:
    """Raise UsageError for flags that exclude each other.

    For a --since in the future, only a message is printed.
    """
    if flags.context and not (flags.grep or flags.errors):
        raise UsageError(
            "-C needs --grep or --errors: it prints the lines around those that match",
            where=f"-C {flags.context}",
            next="add --grep RE",
        )
    if flags.previous and flags.attempt is not None:
        raise UsageError(
            "--previous and --attempt cannot be used together",
            where="tfdeploy logs",
            next="leave out --previous or --attempt",
        )
    if flags.fold and flags.format != "text":
        raise UsageError(
            f"--fold is for text, not for {flags.format}",
            where="tfdeploy logs",
            next="leave --fold out",
        )
    if flags.since is not None and flags.until is not None and flags.since > flags.until:
        raise UsageError(
            "--since is later than --until",
            where="tfdeploy logs",
            next="give a time after --until that is later than that of --since",
        )
    if flags.since is not None and flags.since > time.time() and not flags.quiet:
        print_message("--since is in the future, so no line is new enough")


def make_query_without_tasks(flags: Flags) -> LogQuery:
    """Return the query that the flags define, with an empty list of tasks. Raises UsageError."""
    _refuse_contradictions(flags)
    return LogQuery(
        (),
        since=flags.since,
        until=flags.until,
        last=flags.lines,
        grep=_compile_patterns(flags, map(os.fsencode, flags.grep or ()), "--grep"),
        exclude=_compile_patterns(
            flags, map(os.fsencode, flags.exclude_grep or ()), "--exclude-grep"
        ),
        context=flags.context,
        gaps=flags.format == "text",
        stream="err" if flags.stderr else None,
        errors=flags.errors,
    )


def _compile_patterns(
    flags: Flags, texts: Iterable[AnyStr], flag: str
) -> tuple[re.Pattern[AnyStr], ...]:
    try:
        return tuple(
            compile_user_pattern(text, re.IGNORECASE if flags.ignore_case else 0) for text in texts
        )
    except ValueError as error:
        raise UsageError(
            f"not a regular expression: {error}", where=flag, next="see Python's re"
        ) from error


def select_tasks(flags: Flags, plan: Plan, only_hosts: frozenset[str] | None) -> tuple[str, ...]:
    """Return the names of the tasks that --task, --host and `only_hosts` select.

    Raises UsageError if no task is selected.
    """
    suffix = f" of {plan.run}"
    names, hosts = [task.task for task in plan.tasks], {*plan.host_names}
    tasks = {*names}
    if flags.task is not None:
        roles = group_by_key((task.role, task.task) for task in plan.tasks)
        tasks = match_names(
            ",".join(flags.task), names, roles, flag="--task", kind="task", of=suffix
        )
    if flags.host is not None:
        given = ",".join(flags.host)
        hosts = match_names(given, plan.host_names, {}, flag="--host", kind="host", of=suffix)
    if only_hosts is not None:
        hosts &= only_hosts
    wanted = tuple(task.task for task in plan.tasks if task.task in tasks and task.host in hosts)
    if not wanted:
        known = ", ".join(f"{task.task}@{task.host}" for task in plan.tasks[:12])
        raise UsageError(
            f"no task of {plan.run} matches", where="--task/--host", next=f"the tasks are {known}"
        )
    return wanted


def limit_query_to_attempts(
    flags: Flags, fleet: Fleet, plan: Plan, query: LogQuery, errors: dict[str, TfdeployError]
) -> tuple[LogQuery, bool]:
    """Return the query, limited to the attempts that --attempt or --previous selects, and whether
    to follow new lines.

    Raises UsageError if no task has had such an attempt.
    """
    follow = flags.follow and (flags.until is None or flags.until > time.time())
    if flags.attempt is None and not flags.previous:
        return query, follow
    newest = newest_attempt_numbers(fleet, plan, query.tasks, errors)
    wanted = {task: flags.attempt or last - 1 for task, last in newest.items()}
    existing = {task: attempt for task, attempt in wanted.items() if 0 < attempt <= newest[task]}
    if newest and not existing:
        task = max(newest, key=newest.__getitem__)
        where, what = f"--attempt {flags.attempt}", f"{flags.attempt} attempts"
        if flags.previous:
            where, what = "--previous", "more than one attempt"
        raise UsageError(
            f"no task has had {what}; the newest attempt of {task} is number {newest[task]}",
            where=where,
            next="add --attempt 1",
        )
    follow = follow and any(attempt == newest[task] for task, attempt in existing.items())
    # If a host did not answer, its tasks may have had the attempt that --attempt names. The query
    # therefore keeps these tasks.
    existing |= {
        task: flags.attempt for task in query.tasks if flags.attempt and task not in newest
    }
    return replace(query, tasks=tuple(existing), attempts=existing), follow
