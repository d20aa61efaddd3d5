"""`tfdeploy trust`: shows the host keys of hosts not yet known, asks, records."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfdeploy.cli.options import common

if TYPE_CHECKING:
    from tfdeploy.operations.trust import Scanned


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "trust",
        help="record the host keys of hosts not yet known",
        description="Shows the host keys of hosts not yet known and records them after a yes. Never replaces a key.",
    )
    parser.add_argument("--fingerprints", metavar="FILE", help="record exactly the keys whose `host SHA256:...` stands in FILE")
    common(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from tfdeploy.cli import setting
    from tfdeploy.errors import TfdeployError, worst
    from tfdeploy.operations.trust import record, scan

    inventory = setting.inventory_here(args)
    found = scan(inventory.hosts, parallel=int(args.parallel))
    wanted, refused = _wanted(args, [one for one in found if one.state == "new"])
    if not args.json:
        _show(args, found)
    if wanted and not (args.yes or args.fingerprints):
        wanted = wanted if _ask(len(wanted)) else []
    recorded = record(wanted)
    left = [one for one in found if one.state == "new" and one.host not in {done.host for done in recorded}]
    if args.json:
        print(json.dumps({"ok": not left, "hosts": [_row(one, recorded) for one in found]}))
    else:
        for one in refused:
            print(f"[{one.host}] its key is not the one in {args.fingerprints}: not recorded", file=sys.stderr)
        print(f"{len(recorded)} recorded, {len(left)} left out", file=sys.stderr)
    codes = [one.found.exit_code for one in found if isinstance(one.found, TfdeployError)]
    return worst([*codes, *(4 for one in found if one.state == "changed"), *(4 for _ in left)])


def _wanted(args: argparse.Namespace, new: list[Scanned]) -> tuple[list[Scanned], list[Scanned]]:
    """(what may be recorded, what --fingerprints contradicts)."""
    if not args.fingerprints:
        return new, []
    from tfdeploy.errors import UsageError
    from tfdeploy.operations.trust import read_fingerprints

    try:
        known = read_fingerprints(Path(args.fingerprints).read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot be read: {error}", where=args.fingerprints, next="lines of `host SHA256:...`") from error
    good = [one for one in new if _fingerprint(one) in (known.get(one.host), known.get(getattr(one.found, "name", "")))]
    return good, [one for one in new if one not in good]


def _fingerprint(one: Scanned) -> str | None:
    return getattr(one.found, "fingerprint", None)


def _ask(count: int) -> bool:
    """No terminal, no question: then nothing is recorded."""
    from tfdeploy.errors import UsageError

    if not sys.stdin.isatty():
        raise UsageError(
            f"{count} host keys are not known, and there is no terminal to ask on",
            where="tfdeploy trust",
            next="compare the fingerprints above with the hosts' own, then `tfdeploy trust --yes` or --fingerprints FILE",
        )
    print("Record these keys? Compare them with the hosts' own first (yes/no) ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _row(one: Scanned, recorded: list[Scanned]) -> dict[str, Any]:
    from tfdeploy.errors import TfdeployError

    error = one.found.what if isinstance(one.found, TfdeployError) else None
    done = one.host in {each.host for each in recorded}
    return {
        "host": one.host,
        "state": "recorded" if done else one.state,
        "fingerprint": _fingerprint(one),
        "keytype": getattr(one.found, "keytype", None),
        "error": error,
    }


def _show(args: argparse.Namespace, found: list[Scanned]) -> None:
    from tfdeploy.ui.tables import show_rows
    from tfdeploy.ui.terminal import terminal_of

    rows = []
    for one in found:
        row = _row(one, [])
        note = row["error"] or ""
        if one.state == "changed":
            places = ", ".join(getattr(one.found, "sources", ()))
            note = f"another key is on record at {places}: remove that line if the change is real"
        rows.append((row["host"], row["state"], row["keytype"] or "", row["fingerprint"] or "", note))
    show_rows(terminal_of(sys.stderr, args.color), ["host", "state", "type", "fingerprint", ""], rows)
