"""`tfdeploy trust`: shows the host keys of hosts not yet known, asks, records; with --renew it
replaces a changed one."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tfdeploy.cli.arguments.trust import Flags
from tfdeploy.cli.fleet import show_notice
from tfdeploy.cli.output import print_json, say
from tfdeploy.cli.project import inventory_here
from tfdeploy.errors import TfdeployError, UsageError, worst
from tfdeploy.model.copy_fields import copy_fields
from tfdeploy.model.output.rows import KnownKeyRow, TrustRow
from tfdeploy.model.text.units import count
from tfdeploy.operations.trust import find_machine, read_fingerprints, record, renew, scan
from tfdeploy.ui.host_keys import change, note, renewal_lines, staying
from tfdeploy.ui.question import agrees
from tfdeploy.ui.tables import show_rows

if TYPE_CHECKING:
    from tfdeploy.model.inventory import Inventory
    from tfdeploy.model.output.printed import TrustAnswer
    from tfdeploy.operations.trust import ScanResult


def run(flags: Flags) -> int:
    inventory = inventory_here(flags)
    if flags.renew is not None:
        return _renew(flags, flags.renew, inventory)
    found = scan(inventory.hosts, parallel=flags.parallel, on_notice=show_notice)
    wanted, refused = _wanted(flags, [key for key in found if key.state == "new"])
    if not flags.json:
        _show(flags, found)
    verb = "is" if len(wanted) == 1 else "are"
    wanted = _agreed(
        flags, wanted, f"{count(len(wanted), 'host key')} {verb} not known", "Record these keys?"
    )
    recorded = record(wanted)
    unrecorded = [
        key
        for key in found
        if key.state == "new" and key.host not in {done.host for done in recorded}
    ]
    unsafe = [key for key in found if key.state in ("changed", "revoked")]
    code = worst([*(key.found for key in found), *(4 for _ in (*unsafe, *unrecorded))])
    if flags.json:
        answer: TrustAnswer = {"ok": code == 0, "hosts": [_row(key, recorded) for key in found]}
        print_json(answer)
    else:
        _say_refused(flags, refused)
        say(f"{len(recorded)} recorded, {len(unrecorded)} left out")
    return code


def _renew(flags: Flags, name: str, inventory: Inventory) -> int:
    one = find_machine(inventory.hosts, name, on_notice=show_notice)
    if one is None:
        raise UsageError(
            f"no host {name!r} in the inventory",
            where=inventory.source,
            next="tfdeploy inventory lists the hosts",
        )
    wanted, refused = _wanted(flags, [one] if one.state == "changed" else [])
    if not flags.json:
        flags.err.write(flags.typed("\n".join(renewal_lines(_row(one, [])))) + "\n")
        _say_refused(flags, refused)
    if wanted:
        wanted = _agreed(flags, wanted, change(_row(one, [])), "Replace the key on record?")
    for each in wanted:
        renew(each)
    row = _row(one, wanted, done="renewed")
    if flags.json:
        answer: TrustAnswer = {
            "ok": row["state"] in ("known", "renewed") and not staying(row),
            "hosts": [row],
        }
        print_json(answer)
    elif wanted:
        say(f"[{one.host}] the new key is recorded")
    if isinstance(one.found, TfdeployError):
        return one.found.exit_code
    return int(bool(wanted and staying(row))) if wanted or one.state == "known" else 4


def _wanted(flags: Flags, asked: list[ScanResult]) -> tuple[list[ScanResult], list[ScanResult]]:
    """(keys that may be recorded, keys that --fingerprints contradicts)."""
    if not flags.fingerprints:
        return asked, []

    try:
        known = read_fingerprints(Path(flags.fingerprints).read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"cannot be read: {error}", where=flags.fingerprints, next="lines of `host SHA256:...`"
        ) from error
    good = [key for key in asked if _named_in(known, key)]
    return good, [key for key in asked if key not in good]


def _named_in(known: dict[str, str], key: ScanResult) -> bool:
    found = key.found
    return not isinstance(found, TfdeployError) and found.fingerprint in (
        known.get(key.host),
        known.get(found.name),
    )


def _say_refused(flags: Flags, refused: list[ScanResult]) -> None:
    for key in refused:
        say(f"[{key.host}] its key is not the one in {flags.fingerprints}: not recorded")


def _agreed(flags: Flags, keys: list[ScanResult], what: str, question: str) -> list[ScanResult]:
    """Return the keys if the flags or the operator agree, else none. Raises UsageError where there
    is no terminal to ask on."""
    if not keys or flags.yes or flags.fingerprints:
        return keys
    if not sys.stdin.isatty():
        raise UsageError(
            f"{what}, and there is no terminal to ask on",
            where="tfdeploy trust",
            next="compare the fingerprints with the hosts' own, then the same with --yes or "
            "--fingerprints FILE",
        )
    return keys if agrees(f"{question} Compare with the hosts' own first") else []


def _row(key: ScanResult, recorded: list[ScanResult], done: str = "recorded") -> TrustRow:
    found = key.found
    if isinstance(found, TfdeployError):
        return copy_fields(TrustRow, host=key.host, state=key.state, on_record=[], error=found.what)
    state = done if key.host in {each.host for each in recorded} else key.state
    on_record = [
        copy_fields(
            KnownKeyRow,
            entry,
            place=entry.source,
            marker=entry.marker or None,
            writable=entry.file in found.files,
        )
        for entry in found.judged.entries
    ]
    return copy_fields(TrustRow, found, host=key.host, state=state, on_record=on_record, error=None)


def _show(flags: Flags, found: list[ScanResult]) -> None:
    rows = [_row(key, []) for key in found]
    cells = [
        (
            row["host"],
            row["state"],
            row["keytype"] or "",
            row["fingerprint"] or "",
            flags.typed(note(row)),
        )
        for row in rows
    ]
    uncut = replace(flags.err, width=None)
    show_rows(uncut, ["host", "state", "type", "fingerprint", ""], cells)
