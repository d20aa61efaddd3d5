"""`tfdeploy trust`: shows the host keys of hosts not yet known, asks, records."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfdeploy.cli.flags import CommonFlags, carried_out_by

if TYPE_CHECKING:
    from tfdeploy.model.rows import TrustRow
    from tfdeploy.operations.trust import Scanned


@dataclass(frozen=True, kw_only=True)
class Flags(CommonFlags):
    fingerprints: str | None = None


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "trust",
        help="record the host keys of hosts not yet known",
        description="Shows the host keys of hosts not yet known and records them after a yes. Never replaces a key.",
    )
    parser.add_argument("--fingerprints", metavar="FILE", help="record exactly the keys whose `host SHA256:...` stands in FILE")
    carried_out_by(parser, Flags, run)


def run(flags: Flags) -> int:
    from tfdeploy.cli import setting
    from tfdeploy.errors import TfdeployError, worst
    from tfdeploy.operations.trust import record, scan

    inventory = setting.inventory_here(flags)
    found = scan(inventory.hosts, parallel=flags.parallel)
    wanted, refused = _wanted(flags, [one for one in found if one.state == "new"])
    if not flags.json:
        _show(flags, found)
    if wanted and not (flags.yes or flags.fingerprints):
        wanted = wanted if _ask(len(wanted)) else []
    recorded = record(wanted)
    left = [one for one in found if one.state == "new" and one.host not in {done.host for done in recorded}]
    if flags.json:
        print(json.dumps({"ok": not left, "hosts": [_row(one, recorded) for one in found]}))
    else:
        for one in refused:
            print(f"[{one.host}] its key is not the one in {flags.fingerprints}: not recorded", file=sys.stderr)
        print(f"{len(recorded)} recorded, {len(left)} left out", file=sys.stderr)
    codes = [one.found.exit_code for one in found if isinstance(one.found, TfdeployError)]
    return worst([*codes, *(4 for one in found if one.state == "changed"), *(4 for _ in left)])


def _wanted(flags: Flags, new: list[Scanned]) -> tuple[list[Scanned], list[Scanned]]:
    """(what may be recorded, what --fingerprints contradicts)."""
    if not flags.fingerprints:
        return new, []
    from tfdeploy.errors import UsageError
    from tfdeploy.operations.trust import read_fingerprints

    try:
        known = read_fingerprints(Path(flags.fingerprints).read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot be read: {error}", where=flags.fingerprints, next="lines of `host SHA256:...`") from error
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


def _row(one: Scanned, recorded: list[Scanned]) -> TrustRow:
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


def _show(flags: Flags, found: list[Scanned]) -> None:
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
    show_rows(terminal_of(sys.stderr, flags.color), ["host", "state", "type", "fingerprint", ""], rows)
