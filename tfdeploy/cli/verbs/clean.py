"""`tfdeploy clean`: removes what no run needs any more, after it has shown what that is and
asked."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from tfdeploy.cli.arguments.clean import WORD, Flags
from tfdeploy.cli.fleet import lock_holder, open_fleet
from tfdeploy.cli.messages import show_errors
from tfdeploy.cli.output import print_json, say
from tfdeploy.cli.project import inventory_here, job_here, secret_paths_here
from tfdeploy.cli.state import run_store
from tfdeploy.cli.views import plain_view
from tfdeploy.errors import UsageError, worst
from tfdeploy.model.clean import Rules
from tfdeploy.model.copy_fields import copy_fields
from tfdeploy.model.output.rows import CleanRow
from tfdeploy.operations.clean import find, find_everything, local_runs, remove, remove_everything
from tfdeploy.ui.amounts import in_bytes
from tfdeploy.ui.cleaning import record_words, show_things, staying_words
from tfdeploy.ui.question import agrees, ask

if TYPE_CHECKING:
    from tfdeploy.errors import TfdeployError
    from tfdeploy.model.answers.clean import CleanItem
    from tfdeploy.model.inventory import Host
    from tfdeploy.model.output.printed import CleanAnswer
    from tfdeploy.model.output.rows import CleanedRow
    from tfdeploy.operations.clean import Found, LocalRuns

    _Rows = dict[str, list[CleanRow]]

HERE = "this machine"  # among the hosts: no host can have a blank in its name


def run(flags: Flags) -> int:
    _refuse_mixed(flags)
    job = job_here(flags)
    jobs = None if job is None or flags.all or flags.everything else (job.name,)
    named = tuple(job.data) if job is not None and flags.data else () if flags.data else None
    secret_paths = {} if flags.everything else secret_paths_here(flags)
    rules = Rules(flags.newest or 0, flags.older or 0.0, named, secret_paths)
    store = run_store()
    with open_fleet(flags) as fleet:
        hosts: tuple[Host, ...] = inventory_here(flags).hosts
        now = time.time()
        found = (
            find_everything(fleet, hosts)
            if flags.everything
            else find(fleet, hosts, jobs, rules, now)
        )
        local = local_runs(store, found, hosts, jobs, rules, now)
        going = _rows(found.going, local.bytes)
        _show_found(flags, found, local, going)
        if flags.dry_run or not any(going.values()):
            _print_json(flags, going, {}, found.errors)
            return worst(found.errors.values())
        _ask(flags)
        if flags.everything:
            removed = remove_everything(fleet, found, hosts, lock_holder())
        else:
            removed = remove(fleet, found, hosts, jobs, rules, lock_holder(), plain_view(flags))
    absent = local.without(removed.runs_left)
    gone = _rows(removed.gone, {run: size for run, size in absent.items() if store.forget(run)})
    show_errors(
        flags, {host: error for host, error in removed.errors.items() if host not in found.errors}
    )
    errors = {**found.errors, **removed.errors}
    _print_json(flags, going, gone, errors)
    if not flags.json and not flags.quiet:
        print(f"{_size(gone)} removed")
    return worst([*errors.values(), *([1] if any(removed.left.values()) else [])])


def _refuse_mixed(flags: Flags) -> None:
    asked = [name for name in ("newest", "older", "data") if getattr(flags, name)]
    if flags.everything and asked:
        raise UsageError(
            f"--everything keeps nothing, so --{asked[0]} has no meaning", next="one of the two"
        )
    if not flags.yes and not flags.dry_run and (flags.json or not sys.stdin.isatty()):
        agreed = _piped_word(flags) if flags.everything else "-y"
        raise UsageError(
            "clean asks before it removes, and nobody is here to answer",
            next=f"{agreed}, or --dry-run first",
        )


def _piped_word(flags: Flags) -> str:
    """Return the command that answers the question of --everything, for the same hosts."""
    bounds = [
        word
        for name in ("limit", "exclude")
        if (value := getattr(flags, name))
        for word in (f"--{name}", value)
    ]
    return f"echo {WORD} | tfdeploy {shlex.join(['clean', '--everything', *bounds, '-y'])}"


def _ask(flags: Flags) -> None:
    """Raises UsageError: it was not agreed to."""
    if flags.everything:
        if ask(f"All of it is removed, checkpoints in `keep` too. Type {WORD} to go on:") != WORD:
            hint = f"type {WORD}" if sys.stdin.isatty() else _piped_word(flags)
            raise UsageError(f"the word {WORD} was not typed: nothing was removed", next=hint)
    elif not flags.yes and not agrees("Remove all of it?"):
        raise UsageError("nothing was removed", next="yes, or -y")


def _rows(items: Mapping[str, Iterable[CleanItem]], records: Mapping[str, int]) -> _Rows:
    """Return the things of each host, and the `records` of this machine: run -> bytes."""
    rows = {
        host: [copy_fields(CleanRow, item) for item in of_host] for host, of_host in items.items()
    }
    rows[HERE] = [
        {"kind": "record", "job": "", "name": run, "bytes": size} for run, size in records.items()
    ]
    return rows


def _size(rows: _Rows) -> str:
    return in_bytes(sum(row["bytes"] for of_host in rows.values() for row in of_host))


def _show_found(flags: Flags, found: Found, local: LocalRuns, going: _Rows) -> None:
    show_errors(flags, found.errors)
    if flags.json:
        return
    if not flags.quiet:
        for line in staying_words(found.staying):
            say(line)
        for host, first in found.shared.items():
            say(f"[{host}] has the same workdir as {first}, so it is cleaned there")
        for line in record_words(local.unended, local.elsewhere, str(run_store().root)):
            say(f"[{HERE}] {line}")
    terminal = flags.out
    if not any(going.values()):
        terminal.write("nothing to remove\n")
        return
    show_things(terminal, found.going, local.bytes)
    terminal.write(f"{_size(going)} in all\n")


def _print_json(
    flags: Flags, going: _Rows, gone: _Rows, errors: Mapping[str, TfdeployError]
) -> None:
    if not flags.json:
        return
    hosts: list[CleanedRow] = []
    for host in sorted(dict.fromkeys((*going, *errors)), key=HERE.__eq__):
        error = errors[host].what if host in errors else None
        row: CleanedRow = {
            "host": host,
            "ok": error is None,
            "removed": gone.get(host, []),
            "error": error,
        }
        if flags.dry_run:
            row["would_remove"] = going.get(host, [])
        hosts.append(row)
    answer: CleanAnswer = {"ok": not errors, "hosts": hosts}
    print_json(answer)
