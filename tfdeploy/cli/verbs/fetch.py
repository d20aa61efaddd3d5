"""Run `tfdeploy fetch`: copy checkpoints, files and logs of a run to this machine.

With --onto, the verb copies `keep` (the job's folders that outlive a run) to another host instead.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfdeploy.cli.arguments.fetch import Flags
from tfdeploy.cli.chosen_run import choose_run
from tfdeploy.cli.messages import print_next_commands, print_unselected_hosts, unselected_host_names
from tfdeploy.cli.output import print_json
from tfdeploy.cli.views import open_transfer
from tfdeploy.errors import Refused, TfdeployError, UsageError, worst_exit_code
from tfdeploy.model.output.rows import FetchRow
from tfdeploy.operations.copy.pull import HostFetch
from tfdeploy.operations.fetch import PARTS, FetchOptions, fetch
from tfdeploy.text.row_values import copy_fields
from tfdeploy.ui.reports import show_fetch
from tfdeploy.ui.sanitise import clean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdeploy.model.events import Emit
    from tfdeploy.model.output.printed import FetchAnswer
    from tfdeploy.model.plan import Plan
    from tfdeploy.operations.fetch import FetchResult
    from tfdeploy.transport.protocols import Fleet


def run(flags: Flags) -> int:
    if flags.onto is not None:
        from tfdeploy.cli.verbs.fetch_onto import copy_keep_onto

        _refuse_flags_beside_onto(flags)
        return copy_keep_onto(flags, flags.onto)
    with open_transfer(flags, flags.bwlimit) as (fleet, emit):
        plan, only_hosts, plan_code = choose_run(flags, fleet)
        fetched, answer, target = fetch_to_folder(flags, fleet, plan, only_hosts, emit)
    rows = answer["hosts"]
    if flags.json:
        print_json(answer)
    else:
        _show_fetched(flags, plan, fetched, rows, target)
    print_unselected_hosts(flags, unselected_host_names(plan, only_hosts))
    return worst_exit_code(
        [plan_code, *fetched.hosts.values(), *(1 for row in rows if not row["ok"])]
    )


def fetch_to_folder(
    flags: Flags, fleet: Fleet, plan: Plan, only_hosts: frozenset[str] | None, emit: Emit
) -> tuple[FetchResult, FetchAnswer, Path]:
    """Fetch what the flags select. Return (the outcome of each host, the answer of --json, the
    folder of the copies)."""
    target = Path(flags.to) if flags.to else _make_default_folder() / plan.run
    gets_gitignore = flags.to and _is_new_or_empty(target) and target.resolve() != Path.cwd()
    parts = _selected_parts(flags)
    options = FetchOptions(target, parts, flags.overwrite, only_hosts, flags.max)
    fetched = fetch(fleet, plan, options, emit)
    if gets_gitignore:
        # The .gitignore keeps a sync from sending the fetched files as code.
        with suppress(OSError):
            if any(target.iterdir()):
                (target / ".gitignore").write_text("*\n")
    rows = [_make_row(host, result) for host, result in fetched.hosts.items()]
    answer: FetchAnswer = {
        "run": plan.run,
        "ok": all(row["ok"] for row in rows),
        "to": str(target.resolve()),
        "keep_from": fetched.keep_from,
        "hosts": rows,
    }
    return fetched, answer, target


def _selected_parts(flags: Flags) -> tuple[str, ...]:
    """Return which of keep, files and logs to fetch: those that the command line names, else
    all."""
    return tuple(part for part in PARTS if getattr(flags, part)) or PARTS


def _refuse_flags_beside_onto(flags: Flags) -> None:
    """Raise UsageError for flags that --onto does not allow."""
    others = (flags.files, flags.logs, flags.to, flags.run_prefix, flags.overwrite)
    if any(others) or flags.max is not None:
        raise UsageError(
            "--onto copies only the newest `keep` folders of the job",
            where="tfdeploy fetch",
            next=f"`tfdeploy fetch --keep --onto {flags.onto}`",
        )


def _make_default_folder() -> Path:
    """Create the folder ./fetched and return it. Raises Refused.

    The folder gets a .gitignore, so that no sync sends it as code.
    """
    folder = Path("fetched")
    try:
        folder.mkdir(exist_ok=True)
        (folder / ".gitignore").write_text("*\n")
    except OSError as error:
        raise Refused(
            f"cannot write here: {error.strerror}",
            where=str(folder.resolve()),
            next="name another folder with --to DIR",
        ) from error
    return folder


def _is_new_or_empty(folder: Path) -> bool:
    """Return True if the folder is missing or empty.

    Only into such a folder, fetch writes a .gitignore. In a folder with files, the .gitignore could
    keep a sync from sending code.
    """
    try:
        return not any(folder.iterdir())
    except OSError:
        return not folder.exists()


def _make_row(host: str, result: HostFetch | TfdeployError) -> FetchRow:
    fields: dict[str, Any] = {"ok": False, "seconds": None, "error": None}
    if isinstance(result, TfdeployError):
        fields["error"], result = result.what, HostFetch()
    else:
        fields |= {
            "ok": not (result.newer_here or result.unreadable),
            "seconds": round(result.seconds, 3),
        }
    return copy_fields(FetchRow, result, host=host, **fields)


def _show_fetched(
    flags: Flags, plan: Plan, fetched: FetchResult, rows: Sequence[FetchRow], target: Path
) -> None:
    terminal = flags.err
    if not flags.quiet or not all(row["ok"] for row in rows):
        show_fetch(terminal, rows)
    shows_keep = "keep" in _selected_parts(flags) and not flags.quiet
    failed = [row["host"] for row in rows if row["error"]]
    if shows_keep and fetched.keep_from in failed:
        terminal.write(f"the `keep` folders of {clean(fetched.keep_from)} may be incomplete here\n")
    elif shows_keep and plan.keep:
        others = ", ".join(fetched.hosts_with_other_keep)
        if fetched.keep_from is not None:
            text = f"the `keep` folders are from {fetched.keep_from}, which has the newest folders"
            if flags.selects_hosts:
                text += " of the hosts that were asked"
        else:
            which = " on the hosts that answered" * bool(failed)
            text = f"the `keep` folders{which} " + (
                "have no checkpoint of this run" if others else "are still empty"
            )
        if others:
            text += f"; to fetch the folders of {others}, use --keep --limit HOST --to DIR"
        terminal.write(f"{clean(text)}\n")
    if any(row["newer_here"] for row in rows):
        terminal.write(
            "  next: add --overwrite to replace these files, or --to DIR with another folder\n"
        )
    print_next_commands(flags, fetched.hosts)
    print(target)
