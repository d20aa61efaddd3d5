"""`tfdeploy fetch`: checkpoints, files that programs left, and logs, back to this machine; or `keep` to another host."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfdeploy.cli.flags import OfRun, finish_parser
from tfdeploy.cli.options import add_bwlimit, size
from tfdeploy.errors import Refused, UsageError

if TYPE_CHECKING:
    from tfdeploy.errors import TfdeployError
    from tfdeploy.model.plan import Plan
    from tfdeploy.model.printed import FetchAnswer
    from tfdeploy.model.rows import FetchRow
    from tfdeploy.operations.copy.pull import HostFetch
    from tfdeploy.operations.fetch import Fetched

PARTS = {
    "keep": "the folders of `keep` (checkpoints), from the host with the newest",
    "files": "what the programs left in their working directories, outside keep",
    "logs": "the tasks' logs, whole",
}


@dataclass(frozen=True, kw_only=True)
class Flags(OfRun):
    parts: Sequence[str] | None = None
    to: str | None = None
    overwrite: bool = False
    onto: str | None = None
    max: int | None = None


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "fetch",
        help="checkpoints and logs back to this machine",
        description="Brings keep, files and logs of a run, or only what --keep, --files and --logs name, and verifies them. "
        "The same command again goes on, or brings what is new.",
    )
    parser.add_argument("wanted", nargs="?", metavar="RUN", help="id or unique prefix (default: the newest of this job)")
    for part, text in PARTS.items():
        parser.add_argument(f"--{part}", dest="parts", action="append_const", const=part, help=text)
    parser.add_argument("--to", metavar="DIR", help="where to (default: ./fetched/RUN)")
    parser.add_argument("--overwrite", action="store_true", help="also over files that were changed here since")
    parser.add_argument("--max", metavar="SIZE", type=size, help="take no more than this from one host, such as 20GB or 500MiB")
    parser.add_argument(
        "--onto", metavar="HOST", help="with --keep: copy the newest keep to that host, where a launch goes on from it"
    )
    add_bwlimit(parser)
    finish_parser(parser, Flags, run)


def run(flags: Flags) -> int:
    from tfdeploy.cli import context
    from tfdeploy.cli.views import transfer_view
    from tfdeploy.errors import TfdeployError, worst
    from tfdeploy.operations.emit import notices_to
    from tfdeploy.operations.fetch import PARTS, FetchOptions, fetch

    if flags.onto is not None:
        from tfdeploy.cli.onto import onto

        _refuse_more(flags)
        return onto(flags, flags.onto)
    with context.open_fleet(flags) as fleet, transfer_view(flags) as emit:
        fleet.on_notice = notices_to(emit)
        plan, only, plan_code = context.chosen_run(flags, fleet)
        to = Path(flags.to) if flags.to else _own_folder() / plan.run
        gets_gitignore = flags.to is not None and _is_new_or_empty(to) and to.resolve() != Path.cwd()
        fetched = fetch(fleet, plan, FetchOptions(to, tuple(flags.parts or PARTS), flags.overwrite, only, flags.max), emit)
    if gets_gitignore:
        _add_gitignore(to)
    rows = [_row(host, result) for host, result in fetched.hosts.items()]
    unasked = [host.host for host in plan.hosts if only is not None and host.host not in only]
    errors = [result for result in fetched.hosts.values() if isinstance(result, TfdeployError)]
    if flags.json:
        answer: FetchAnswer = {
            "run": plan.run,
            "ok": all(row["ok"] for row in rows),
            "to": str(to.resolve()),
            "keep_from": fetched.keep_from,
            "hosts": rows,
        }
        print(json.dumps(answer))
    else:
        _show(flags, plan, fetched, rows, to)
    context.show_unasked(flags, unasked)
    return worst([plan_code, *(error.exit_code for error in errors), *(1 for row in rows if not row["ok"])])


def _refuse_more(flags: Flags) -> None:
    if flags.parts not in (None, ["keep"]) or flags.to or flags.wanted or flags.overwrite or flags.max is not None:
        raise UsageError(
            "--onto copies the newest keep of the job, and nothing else",
            where="tfdeploy fetch",
            next=f"tfdeploy fetch --keep --onto {flags.onto}",
        )


def _own_folder() -> Path:
    """./fetched, with a .gitignore so that no sync sends it as code."""
    folder = Path("fetched")
    try:
        folder.mkdir(exist_ok=True)
        (folder / ".gitignore").write_text("*\n")
    except OSError as error:
        raise Refused(f"cannot write here: {error.strerror}", where=str(folder.resolve()), next="--to DIR") from error
    return folder


def _is_new_or_empty(folder: Path) -> bool:
    """Return whether the folder has no files. If it has any, they may be code, so it gets no .gitignore."""
    try:
        return not any(folder.iterdir())
    except OSError:
        return not folder.exists()


def _add_gitignore(folder: Path) -> None:
    """Write a .gitignore, so that no sync sends the fetched files as code."""
    with suppress(OSError):
        if any(folder.iterdir()):
            (folder / ".gitignore").write_text("*\n")


def _row(host: str, result: HostFetch | TfdeployError) -> FetchRow:
    from tfdeploy.errors import TfdeployError

    if isinstance(result, TfdeployError):
        return {
            "host": host,
            "ok": False,
            "files": 0,
            "bytes_received": 0,
            "seconds": None,
            "newer_here": [],
            "left_there": [],
            "error": result.what,
        }
    return {
        "host": host,
        "ok": not result.newer_here,
        "files": result.files,
        "bytes_received": result.bytes_received,
        "seconds": round(result.seconds, 3),
        "newer_here": result.newer_here,
        "left_there": result.left_there,
        "error": None,
    }


def _show(flags: Flags, plan: Plan, fetched: Fetched, rows: list[FetchRow], to: Path) -> None:
    from tfdeploy.ui.reports import show_fetch, show_next
    from tfdeploy.ui.sanitise import clean
    from tfdeploy.ui.terminal import terminal_of

    terminal = terminal_of(sys.stderr, flags.color)
    if not flags.quiet or not all(row["ok"] for row in rows):
        show_fetch(terminal, rows)
    asked = not flags.parts or "keep" in flags.parts
    if asked and fetched.keep_from is not None and not flags.quiet:
        more = f"; other kept files are on {', '.join(fetched.others)} (--keep --limit HOST --to DIR)" if fetched.others else ""
        of = " of the hosts that were asked" if flags.bounded else ""
        terminal.write(f"keep is from {clean(fetched.keep_from)}, the newest{of}{clean(more)}\n")
    elif asked and plan.keep and not flags.quiet:
        terminal.write("nothing is in keep yet\n")
    if any(row["newer_here"] for row in rows):
        terminal.write("  next: --overwrite takes the hosts' files, or --to another folder\n")
    show_next(terminal, flags.nexts(fetched.hosts))
    print(to)
