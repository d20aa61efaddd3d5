"""`tfdeploy clean`: removes what no run needs any more, after it has shown what that is and asked."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from tfdeploy.cli.arguments.clean import WORD, Flags
from tfdeploy.cli.fleet import lock_holder, open_fleet
from tfdeploy.cli.messages import show_errors
from tfdeploy.cli.project import inventory_here, job_here, secret_paths_here
from tfdeploy.cli.state import run_store
from tfdeploy.cli.views import plain_view
from tfdeploy.errors import UsageError, worst
from tfdeploy.model.clean import Rules
from tfdeploy.model.copy_fields import copy_fields
from tfdeploy.model.rows import CleanRow
from tfdeploy.operations.clean import find, find_everything, local_runs, remove, remove_everything
from tfdeploy.ui.amounts import in_bytes
from tfdeploy.ui.cleaning import record_words, show_things, staying_words
from tfdeploy.ui.question import agrees, ask

if TYPE_CHECKING:
    from tfdeploy.errors import TfdeployError
    from tfdeploy.model.answers.clean import CleanItem
    from tfdeploy.model.inventory import Host
    from tfdeploy.model.printed import CleanAnswer
    from tfdeploy.model.rows import CleanedRow
    from tfdeploy.operations.clean import Found, LocalRuns, Removed

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
        found = find_everything(fleet, hosts) if flags.everything else find(fleet, hosts, jobs, rules, now)
        local = local_runs(store, found, hosts, jobs, rules, now)
        nothing = not local.going and not any(found.going.values())
        _show_found(flags, found, local, nothing)
        if flags.dry_run or nothing:
            _show_result(flags, found, None, {}, local.bytes)
            return worst(error.exit_code for error in found.errors.values())
        _ask(flags)
        if flags.everything:
            removed: Removed = remove_everything(fleet, found, hosts, lock_holder(now))
        else:
            removed = remove(fleet, found, hosts, jobs, rules, lock_holder(now), plain_view(flags))
    absent = local.without(removed.runs_left)
    forgotten = {run: size for run, size in absent.items() if store.forget(run)}
    _show_result(flags, found, removed, forgotten, local.bytes)
    errors = {**found.errors, **removed.errors}
    return worst([*(error.exit_code for error in errors.values()), *([1] if any(removed.left.values()) else [])])


def _refuse_mixed(flags: Flags) -> None:
    asked = [name for name in ("newest", "older", "data") if getattr(flags, name)]
    if flags.everything and asked:
        raise UsageError(f"--everything keeps nothing, so --{asked[0]} has no meaning", next="one of the two")
    if not flags.yes and not flags.dry_run and (flags.json or not sys.stdin.isatty()):
        agreed = _piped_word(flags) if flags.everything else "-y"
        raise UsageError("clean asks before it removes, and nobody is here to answer", next=f"{agreed}, or --dry-run first")


def _piped_word(flags: Flags) -> str:
    """Return the command that answers the question of --everything, for the same hosts."""
    bounds = [word for name in ("limit", "exclude") if (value := getattr(flags, name)) for word in (f"--{name}", value)]
    return f"echo {WORD} | tfdeploy {shlex.join(['clean', '--everything', *bounds, '-y'])}"


def _ask(flags: Flags) -> None:
    """Raises UsageError: it was not agreed to."""
    if flags.everything:
        if ask(f"All of it is removed, checkpoints in `keep` too. Type {WORD} to go on:") != WORD:
            hint = f"type {WORD}" if sys.stdin.isatty() else _piped_word(flags)
            raise UsageError(f"the word {WORD} was not typed: nothing was removed", next=hint)
    elif not flags.yes and not agrees("Remove all of it?"):
        raise UsageError("nothing was removed", next="yes, or -y")


def _show_found(flags: Flags, found: Found, local: LocalRuns, nothing: bool) -> None:
    show_errors(flags, found.errors)
    if flags.json:
        return
    if not flags.quiet:
        for line in staying_words(found.staying):
            print(line, file=sys.stderr)
        for host, first in found.shared.items():
            print(f"[{host}] has the same workdir as {first}, so it is cleaned there", file=sys.stderr)
        for line in record_words(local.unended, local.elsewhere, str(run_store().root)):
            print(f"[{HERE}] {line}", file=sys.stderr)
    terminal = flags.out
    if nothing:
        terminal.write("nothing to remove\n")
        return
    show_things(terminal, found.going, local.bytes)
    terminal.write(f"{in_bytes(found.bytes + sum(local.bytes.values()))} in all\n")


def _show_result(
    flags: Flags, found: Found, removed: Removed | None, forgotten: Mapping[str, int], local: Mapping[str, int]
) -> None:
    """`removed` None: nothing was tried."""
    if removed is not None:
        show_errors(flags, {host: error for host, error in removed.errors.items() if host not in found.errors})
    if flags.json:
        print(json.dumps(_as_json(found, removed, forgotten, local, flags.dry_run)))
    elif removed is not None and not flags.quiet:
        freed = sum(item.bytes for items in removed.gone.values() for item in items) + sum(forgotten.values())
        print(f"{in_bytes(freed)} removed")


def _as_json(
    found: Found, removed: Removed | None, forgotten: Mapping[str, int], local: Mapping[str, int], dry_run: bool
) -> CleanAnswer:
    errors: dict[str, TfdeployError] = {**found.errors, **(removed.errors if removed is not None else {})}
    hosts: list[CleanedRow] = []
    for host in (*found.going, *(host for host in found.errors if host not in found.going)):
        gone = _rows(removed.gone.get(host, ()) if removed is not None else ())
        error = errors[host].what if host in errors else None
        row: CleanedRow = {"host": host, "ok": error is None, "removed": gone, "error": error}
        if dry_run:
            row["would_remove"] = _rows(found.going.get(host, ()))
        hosts.append(row)
    own: CleanedRow = {"host": HERE, "ok": True, "removed": _records(forgotten), "error": None}
    if dry_run:
        own["would_remove"] = _records(local)
    return {"ok": not errors, "hosts": [*hosts, own]}


def _rows(items: Iterable[CleanItem]) -> list[CleanRow]:
    return [copy_fields(CleanRow, item) for item in items]


def _records(runs: Mapping[str, int]) -> list[CleanRow]:
    return [{"kind": "record", "job": "", "name": run, "bytes": size} for run, size in runs.items()]
