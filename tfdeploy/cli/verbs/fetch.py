"""Run `tfdeploy fetch`: copy checkpoints, files and logs of a run to this machine.

With --onto, the verb copies `keep` (the job's folders that outlive a run) to another host instead.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tfdeploy.cli.arguments.fetch import Flags
from tfdeploy.cli.chosen_run import choose_run
from tfdeploy.cli.messages import show_unasked, unasked_hosts
from tfdeploy.cli.output import print_json
from tfdeploy.cli.views import open_transfer
from tfdeploy.errors import Refused, TfdeployError, UsageError, worst
from tfdeploy.model.copy_fields import copy_fields
from tfdeploy.model.output.rows import FetchRow
from tfdeploy.operations.copy.pull import HostFetch
from tfdeploy.operations.fetch import PARTS, FetchOptions, fetch
from tfdeploy.ui.reports import show_fetch, show_next
from tfdeploy.ui.sanitise import clean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdeploy.model.events import Emit
    from tfdeploy.model.output.printed import FetchAnswer
    from tfdeploy.model.plan import Plan
    from tfdeploy.operations.fetch import Fetched
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
    show_unasked(flags, unasked_hosts(plan, only_hosts))
    return worst([plan_code, *fetched.hosts.values(), *(1 for row in rows if not row["ok"])])


def fetch_to_folder(
    flags: Flags, fleet: Fleet, plan: Plan, only_hosts: frozenset[str] | None, emit: Emit
) -> tuple[Fetched, FetchAnswer, Path]:
    """Fetch what the flags select. Return the outcome of each host, the answer, and the folder."""
    target = Path(flags.to) if flags.to else _make_default_folder() / plan.run
    gets_gitignore = (
        flags.to is not None and _is_new_or_empty(target) and target.resolve() != Path.cwd()
    )
    fetched = fetch(
        fleet,
        plan,
        FetchOptions(target, _selected_parts(flags), flags.overwrite, only_hosts, flags.max),
        emit,
    )
    if gets_gitignore:
        _write_gitignore(target)
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
    """Return what to fetch (keep, files, logs): what the command line names, or all of it."""
    return tuple(part for part in PARTS if getattr(flags, part)) or PARTS


def _refuse_flags_beside_onto(flags: Flags) -> None:
    """Raise UsageError for flags that --onto does not allow."""
    if (
        flags.files
        or flags.logs
        or flags.to
        or flags.run_prefix
        or flags.overwrite
        or flags.max is not None
    ):
        raise UsageError(
            "--onto copies the newest keep of the job, and nothing else",
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
            next="name another with --to DIR",
        ) from error
    return folder


def _is_new_or_empty(folder: Path) -> bool:
    """True if the folder is missing or empty.

    If it is neither, its files may be code, which a .gitignore would hide from a sync.
    """
    try:
        return not any(folder.iterdir())
    except OSError:
        return not folder.exists()


def _write_gitignore(folder: Path) -> None:
    """Write a .gitignore, so that no sync sends the fetched files as code."""
    with suppress(OSError):
        if any(folder.iterdir()):
            (folder / ".gitignore").write_text("*\n")


def _make_row(host: str, result: HostFetch | TfdeployError) -> FetchRow:
    if isinstance(result, TfdeployError):
        return copy_fields(
            FetchRow, HostFetch(), host=host, ok=False, seconds=None, error=result.what
        )
    ok, seconds = not result.newer_here, round(result.seconds, 3)
    return copy_fields(FetchRow, result, host=host, ok=ok, seconds=seconds, error=None)


def _show_fetched(
    flags: Flags, plan: Plan, fetched: Fetched, rows: Sequence[FetchRow], target: Path
) -> None:
    terminal = flags.err
    if not flags.quiet or not all(row["ok"] for row in rows):
        show_fetch(terminal, rows)
    asked = "keep" in _selected_parts(flags)
    if asked and fetched.keep_from is not None and not flags.quiet:
        others = (
            f"; other kept files are on {', '.join(fetched.others)} (--keep --limit HOST --to DIR)"
            if fetched.others
            else ""
        )
        which = " of the hosts that were asked" if flags.selects_hosts else ""
        terminal.write(
            f"keep is from {clean(fetched.keep_from)}, the newest{which}{clean(others)}\n"
        )
    elif asked and plan.keep and not flags.quiet:
        terminal.write("keep is still empty\n")
    if any(row["newer_here"] for row in rows):
        terminal.write("  next: --overwrite to replace them, or --to another folder\n")
    show_next(terminal, flags.next_commands(fetched.hosts))
    print(target)
