"""Run `tfdeploy trust`: show the host keys that are not known yet, ask for consent, and record the
keys.

With --renew, the verb replaces a host key that has changed.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tfdeploy.cli.arguments.trust import Flags
from tfdeploy.cli.fleet import show_notice
from tfdeploy.cli.output import print_json, print_message
from tfdeploy.cli.project import load_selected_inventory
from tfdeploy.errors import TfdeployError, UsageError, worst_exit_code
from tfdeploy.model.output.rows import KnownKeyRow, TrustRow
from tfdeploy.operations.trust import (
    known_hosts_file_to_write,
    read_fingerprints,
    record_new_keys,
    replace_key,
    scan_by_name,
    scan_host_keys,
)
from tfdeploy.text.row_values import copy_fields
from tfdeploy.text.units import format_count
from tfdeploy.ui.host_keys import (
    describe_key_change,
    describe_state,
    remaining_old_places,
    renewal_lines,
)
from tfdeploy.ui.question import confirm
from tfdeploy.ui.tables import show_rows

if TYPE_CHECKING:
    from tfdeploy.model.inventory import Inventory
    from tfdeploy.model.output.printed import TrustAnswer
    from tfdeploy.operations.trust import HostKeyScan


def run(flags: Flags) -> int:
    inventory = load_selected_inventory(flags)
    if flags.renew is not None:
        return _renew_key(flags, flags.renew, inventory)
    keys = scan_host_keys(inventory.hosts, parallel=flags.parallel, on_notice=show_notice)
    new_keys = [key for key in keys if key.state == "new"]
    keys_to_record, refused = _filter_by_fingerprints(flags, new_keys)
    if not flags.json:
        _write_key_table(flags, keys)
    verb = "is" if len(keys_to_record) == 1 else "are"
    what = f"{format_count(len(keys_to_record), 'host key')} {verb} not known"
    recorded = record_new_keys(_confirm_keys(flags, keys_to_record, what, "Record these keys?"))
    recorded_hosts = {key.host for key in recorded}
    unrecorded = [key for key in new_keys if key.host not in recorded_hosts]
    unsafe = [key for key in keys if key.state in ("changed", "revoked")]
    code = worst_exit_code([*(key.outcome for key in keys), *(4 for _ in (*unsafe, *unrecorded))])
    if flags.json:
        answer: TrustAnswer = {"ok": code == 0, "hosts": [_make_row(key, recorded) for key in keys]}
        print_json(answer)
    else:
        _print_refused(flags, refused)
        files = sorted({known_hosts_file_to_write(key) for key in recorded})
        where = f"; recorded in {', '.join(files)}" if files else ""
        print_message(f"{len(recorded)} recorded, {len(unrecorded)} left out{where}")
    return code


def _renew_key(flags: Flags, name: str, inventory: Inventory) -> int:
    """Replace the recorded key of host `name` if the operator agrees. Return the exit code."""
    key = scan_by_name(inventory.hosts, name, on_notice=show_notice)
    if key is None:
        raise UsageError(
            f"no host {name!r} in the inventory",
            where=inventory.source,
            next="`tfdeploy inventory` lists the hosts",
        )
    keys_to_record, refused = _filter_by_fingerprints(
        flags, [key] if key.state == "changed" else []
    )
    if not flags.json:
        flags.err.write(flags.add_file_flags("\n".join(renewal_lines(_make_row(key, [])))) + "\n")
        _print_refused(flags, refused)
    if keys_to_record:
        what = describe_key_change(_make_row(key, []))
        keys_to_record = _confirm_keys(flags, keys_to_record, what, "Replace the key on record?")
    for each in keys_to_record:
        replace_key(each)
    row = _make_row(key, keys_to_record, done_state="renewed")
    is_good = row["state"] in ("known", "renewed")
    if flags.json:
        answer: TrustAnswer = {"ok": is_good and not remaining_old_places(row), "hosts": [row]}
        print_json(answer)
    elif keys_to_record:
        print_message(f"[{key.host}] the new key is recorded")
    if isinstance(key.outcome, TfdeployError):
        return key.outcome.exit_code
    if not is_good:
        return 4
    return int(bool(keys_to_record and remaining_old_places(row)))


def _filter_by_fingerprints(
    flags: Flags, scans: list[HostKeyScan]
) -> tuple[list[HostKeyScan], list[HostKeyScan]]:
    """Return (keys that may be recorded, keys that differ from the file of --fingerprints)."""
    if not flags.fingerprints:
        return scans, []

    try:
        known = read_fingerprints(Path(flags.fingerprints).read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"cannot be read: {error}",
            where=flags.fingerprints,
            next="write lines such as: n1 SHA256:...",
        ) from error
    good = [
        key
        for key in scans
        if not isinstance(key.outcome, TfdeployError)
        and key.outcome.fingerprint in (known.get(key.host), known.get(key.outcome.name))
    ]
    return good, [key for key in scans if key not in good]


def _print_refused(flags: Flags, refused: list[HostKeyScan]) -> None:
    for key in refused:
        print_message(
            f"[{key.host}] the key was not recorded: {flags.fingerprints} has no such key for "
            "this host"
        )


def _confirm_keys(
    flags: Flags, keys: list[HostKeyScan], what: str, question: str
) -> list[HostKeyScan]:
    """Return the keys if -y, --fingerprints or the operator confirms them, else an empty list.

    Raises UsageError if there is no terminal for the question.
    """
    if not keys or flags.yes or flags.fingerprints:
        return keys
    if not sys.stdin.isatty():
        raise UsageError(
            f"{what}, and there is no terminal to ask on",
            where="tfdeploy trust",
            next="compare the fingerprints with those on the hosts, then repeat the command with "
            "--yes or --fingerprints FILE",
        )
    return keys if confirm(f"{question} First compare the keys with those on the hosts") else []


def _make_row(
    key: HostKeyScan, recorded: list[HostKeyScan], done_state: str = "recorded"
) -> TrustRow:
    scanned = key.outcome
    if isinstance(scanned, TfdeployError):
        return copy_fields(
            TrustRow, host=key.host, state=key.state, on_record=[], error=scanned.what
        )
    state = done_state if key.host in {each.host for each in recorded} else key.state
    on_record = [
        copy_fields(
            KnownKeyRow,
            entry,
            place=entry.source,
            marker=entry.marker or None,
            writable=entry.file in scanned.files,
        )
        for entry in scanned.judged.entries
    ]
    return copy_fields(
        TrustRow, scanned, host=key.host, state=state, on_record=on_record, error=None
    )


def _write_key_table(flags: Flags, keys: list[HostKeyScan]) -> None:
    cells = [
        (
            row["host"],
            row["state"],
            row["keytype"] or "",
            row["fingerprint"] or "",
            flags.add_file_flags(describe_state(row)),
        )
        for row in (_make_row(key, []) for key in keys)
    ]
    uncut = replace(flags.err, width=None)
    show_rows(uncut, ["host", "state", "type", "fingerprint", ""], cells)
