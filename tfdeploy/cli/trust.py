"""`tfdeploy trust`: shows the host keys of hosts not yet known, asks, records."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfdeploy.cli.flags import CommonFlags, finish_parser

if TYPE_CHECKING:
    from tfdeploy.model.rows import TrustRow
    from tfdeploy.operations.trust import ScanResult


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
    finish_parser(parser, Flags, run)


def run(flags: Flags) -> int:
    from tfdeploy.cli import context
    from tfdeploy.errors import TfdeployError, worst
    from tfdeploy.operations.trust import record, scan

    inventory = context.inventory_here(flags)
    found = scan(inventory.hosts, parallel=flags.parallel)
    wanted, refused = _wanted(flags, [key for key in found if key.state == "new"])
    if not flags.json:
        _show(flags, found)
    if wanted and not (flags.yes or flags.fingerprints):
        wanted = wanted if _ask(len(wanted)) else []
    recorded = record(wanted)
    unrecorded = [key for key in found if key.state == "new" and key.host not in {done.host for done in recorded}]
    if flags.json:
        print(json.dumps({"ok": not unrecorded, "hosts": [_row(key, recorded) for key in found]}))
    else:
        for key in refused:
            print(f"[{key.host}] its key is not the one in {flags.fingerprints}: not recorded", file=sys.stderr)
        print(f"{len(recorded)} recorded, {len(unrecorded)} left out", file=sys.stderr)
    codes = [key.found.exit_code for key in found if isinstance(key.found, TfdeployError)]
    return worst([*codes, *(4 for key in found if key.state == "changed"), *(4 for _ in unrecorded)])


def _wanted(flags: Flags, new: list[ScanResult]) -> tuple[list[ScanResult], list[ScanResult]]:
    """(keys that may be recorded, keys that --fingerprints contradicts)."""
    if not flags.fingerprints:
        return new, []
    from tfdeploy.errors import UsageError
    from tfdeploy.operations.trust import read_fingerprints

    try:
        known = read_fingerprints(Path(flags.fingerprints).read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot be read: {error}", where=flags.fingerprints, next="lines of `host SHA256:...`") from error
    good = [key for key in new if _fingerprint(key) in (known.get(key.host), known.get(getattr(key.found, "name", "")))]
    return good, [key for key in new if key not in good]


def _fingerprint(key: ScanResult) -> str | None:
    return getattr(key.found, "fingerprint", None)


def _ask(count: int) -> bool:
    """Whether the operator agrees. Raises UsageError where there is no terminal to ask on."""
    from tfdeploy.errors import UsageError

    if not sys.stdin.isatty():
        raise UsageError(
            f"{count} host keys are not known, and there is no terminal to ask on",
            where="tfdeploy trust",
            next="compare the fingerprints above with the hosts' own, then `tfdeploy trust --yes` or --fingerprints FILE",
        )
    print("Record these keys? Compare them with the hosts' own first (yes/no) ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _row(key: ScanResult, recorded: list[ScanResult]) -> TrustRow:
    from tfdeploy.errors import TfdeployError

    error = key.found.what if isinstance(key.found, TfdeployError) else None
    done = key.host in {each.host for each in recorded}
    return {
        "host": key.host,
        "state": "recorded" if done else key.state,
        "fingerprint": _fingerprint(key),
        "keytype": getattr(key.found, "keytype", None),
        "error": error,
    }


def _show(flags: Flags, found: list[ScanResult]) -> None:
    from tfdeploy.ui.tables import show_rows
    from tfdeploy.ui.terminal import terminal_of

    rows = []
    for key in found:
        row = _row(key, [])
        note = row["error"] or ""
        if key.state == "changed":
            places = ", ".join(getattr(key.found, "sources", ()))
            note = f"another key is on record at {places}: remove that line if the change is real"
        rows.append((row["host"], row["state"], row["keytype"] or "", row["fingerprint"] or "", note))
    show_rows(terminal_of(sys.stderr, flags.color), ["host", "state", "type", "fingerprint", ""], rows)
