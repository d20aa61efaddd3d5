"""Run `tfdeploy clean`: show what no run needs any more, ask for consent, and remove it."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from tfdeploy.cli.arguments.clean import CONFIRMATION_WORD, Flags
from tfdeploy.cli.fleet import lock_holder, open_fleet
from tfdeploy.cli.messages import show_errors
from tfdeploy.cli.output import print_json, print_message
from tfdeploy.cli.project import (
    load_job_if_any,
    load_selected_inventory,
    possibly_sent_project_secrets,
)
from tfdeploy.cli.state import open_run_store
from tfdeploy.cli.views import make_plain_view
from tfdeploy.errors import UsageError, worst_exit_code
from tfdeploy.model.answers.clean import CleanRules
from tfdeploy.model.output.rows import CleanRow
from tfdeploy.operations.clean import (
    find_all_items,
    find_candidates,
    remove_candidates,
    remove_everything,
    sort_local_runs,
)
from tfdeploy.text.row_values import copy_fields
from tfdeploy.ui.amounts import format_bytes
from tfdeploy.ui.cleaning import explain_kept_items, explain_kept_records, show_removed_items
from tfdeploy.ui.question import ask, confirm

if TYPE_CHECKING:
    from tfdeploy.errors import TfdeployError
    from tfdeploy.model.answers.clean import CleanItem
    from tfdeploy.model.output.printed import CleanAnswer
    from tfdeploy.model.output.rows import CleanedRow
    from tfdeploy.operations.clean import CleanCandidates, LocalRunRecords

    _Rows = dict[str, list[CleanRow]]

# The key of the control machine in `rows`. No host has this name, because names of hosts contain no
# blank.
THIS_MACHINE = "this machine"


def run(flags: Flags) -> int:
    _refuse_unusable_flags(flags)
    job = load_job_if_any(flags)
    jobs = None if job is None or flags.all or flags.everything else (job.name,)
    named_data = tuple(job.data if job else ()) if flags.data else None
    secret_paths = {} if flags.everything else possibly_sent_project_secrets(flags)
    rules = CleanRules(flags.newest or 0, flags.older or 0.0, named_data, secret_paths)
    store = open_run_store()
    with open_fleet(flags) as fleet:
        hosts = load_selected_inventory(flags).hosts
        now = time.time()
        candidates = (
            find_all_items(fleet, hosts)
            if flags.everything
            else find_candidates(fleet, hosts, jobs, rules, now)
        )
        local_records = sort_local_runs(store, candidates, hosts, jobs, rules, now)
        rows = _make_rows(candidates.removable_items, local_records.removable_sizes())
        _show_removable(flags, candidates, local_records, rows)
        if flags.dry_run or not any(rows.values()):
            _print_json(flags, rows, {}, candidates.errors)
            return worst_exit_code(candidates.errors.values())
        _ask_for_consent(flags)
        if flags.everything:
            removed = remove_everything(fleet, candidates, hosts, lock_holder())
        else:
            view = make_plain_view(flags)
            removed = remove_candidates(fleet, candidates, hosts, jobs, rules, lock_holder(), view)
    records = local_records.removable_sizes(removed.job_runs_still_present)
    forgotten = {run: size for run, size in records.items() if store.remove_run(run)}
    removed_rows = _make_rows(removed.removed_items, forgotten)
    shown = candidates.errors.keys()
    show_errors(flags, {host: e for host, e in removed.errors.items() if host not in shown})
    errors = {**candidates.errors, **removed.errors}
    _print_json(flags, rows, removed_rows, errors)
    if not flags.json and not flags.quiet:
        print(f"{_format_total_size(removed_rows)} removed")
    return worst_exit_code([*errors.values(), *([1] if any(removed.failed_items.values()) else [])])


def _refuse_unusable_flags(flags: Flags) -> None:
    """Raise UsageError for contradictory flags, or if no terminal can show the question."""
    conflicting = [name for name in ("newest", "older", "data") if getattr(flags, name)]
    if flags.everything and conflicting:
        raise UsageError(
            f"--everything removes everything, so --{conflicting[0]} has no meaning",
            next=f"leave out --everything or --{conflicting[0]}",
        )
    if not flags.yes and not flags.dry_run and (flags.json or not sys.stdin.isatty()):
        confirmation = _format_preconfirmed_command(flags) if flags.everything else "add -y"
        raise UsageError(
            "clean asks before it removes anything, but there is no terminal to ask on",
            next=f"{confirmation}, or --dry-run first",
        )


def _format_preconfirmed_command(flags: Flags) -> str:
    """Return a shell command that cleans the same hosts and answers the question for consent."""
    command = f"clean{' --all' if flags.all else ''} --everything"
    for name, value in (("limit", flags.limit), ("exclude", flags.exclude)):
        command += f" --{name} {shlex.quote(value)}" if value else ""
    return f"`echo {CONFIRMATION_WORD} | tfdeploy {command} -y`"


def _ask_for_consent(flags: Flags) -> None:
    """Ask for consent to the removal. Raises UsageError if the operator does not agree."""
    if flags.everything:
        question = f"All of this will be removed, even checkpoints. Type {CONFIRMATION_WORD}"
        if ask(f"{question} to continue:") != CONFIRMATION_WORD:
            hint = (
                f"type {CONFIRMATION_WORD}"
                if sys.stdin.isatty()
                else _format_preconfirmed_command(flags)
            )
            raise UsageError(
                f"the word {CONFIRMATION_WORD} was not typed: nothing was removed", next=hint
            )
    elif not flags.yes and not confirm("Remove all of it?"):
        raise UsageError("nothing was removed", next="answer yes, or add -y")


def _make_rows(
    items: Mapping[str, Iterable[CleanItem]], record_bytes_by_run: Mapping[str, int]
) -> _Rows:
    """Return {host: rows}, with one row for each item to remove and for each run recorded on this
    machine.

    `record_bytes_by_run`: {run: bytes of its record on this machine}.
    """
    records: list[CleanRow] = [
        {"kind": "record", "job": "", "name": run, "bytes": size}
        for run, size in record_bytes_by_run.items()
    ]
    rows = {host: [copy_fields(CleanRow, item) for item in each] for host, each in items.items()}
    return {**rows, THIS_MACHINE: records}


def _format_total_size(rows: _Rows) -> str:
    return format_bytes(sum(row["bytes"] for host_rows in rows.values() for row in host_rows))


def _show_removable(
    flags: Flags, candidates: CleanCandidates, local_records: LocalRunRecords, rows: _Rows
) -> None:
    """Print what would be removed, what is not removed and why, and the errors of hosts."""
    show_errors(flags, candidates.errors)
    if flags.json:
        return
    if not flags.quiet:
        for line in explain_kept_items(candidates.staying_items):
            print_message(line)
        for host, first in candidates.same_workdir_as.items():
            print_message(
                f"[{host}] has the same workdir as {first}; it is cleaned on {first} only"
            )
        folder = str(open_run_store().root)
        for line in explain_kept_records(
            local_records.runs_without_end, local_records.runs_with_silent_hosts, folder
        ):
            print_message(f"[{THIS_MACHINE}] {line}")
    terminal = flags.out
    if not any(rows.values()):
        terminal.write("nothing to remove\n")
        return
    show_removed_items(terminal, candidates.removable_items, local_records.removable_sizes())
    terminal.write(f"{_format_total_size(rows)} in all\n")


def _print_json(
    flags: Flags, rows: _Rows, removed_rows: _Rows, errors: Mapping[str, TfdeployError]
) -> None:
    """Print the answer of --json. Without --json, print nothing."""
    if not flags.json:
        return
    hosts: list[CleanedRow] = []
    for host in sorted(dict.fromkeys((*rows, *errors)), key=THIS_MACHINE.__eq__):
        error = errors[host].what if host in errors else None
        row: CleanedRow = {
            "host": host,
            "ok": error is None,
            "removed": removed_rows.get(host, []),
            "error": error,
        }
        if flags.dry_run:
            row["would_remove"] = rows.get(host, [])
        hosts.append(row)
    answer: CleanAnswer = {"ok": not errors, "hosts": hosts}
    print_json(answer)
