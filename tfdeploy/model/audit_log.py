"""Read a host's audit log: a JSON object a line, appended by the agents of that host. Pure.

The account that the log is about can rewrite it: docs/audit.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from tfdeploy.model.answers.audit import Entry
from tfdeploy.model.answers.reading import BadShape, read_text

LOG, OLDER_LOG = "log.jsonl", "log.1.jsonl"
MOST_LINES = 50_000
MOST_LINE_BYTES = 1 << 15
MOST_FAULTS = 100


@dataclass(frozen=True)
class AuditLog:
    """The entries of a log. `faults`: (line, what is wrong with it), such as "log.jsonl:17"."""

    entries: tuple[Entry, ...]
    faults: tuple[tuple[str, str], ...]


def read_log(older: bytes, newer: bytes) -> AuditLog:
    """Return the entries of both files of a log, and the lines that are not entries."""
    entries: list[Entry] = []
    faults: list[tuple[str, str]] = []
    for name, content in ((OLDER_LOG, older), (LOG, newer)):
        for number, text in enumerate(content.split(b"\n", MOST_LINES), 1):
            entry = _entry(text)
            if entry is not None:
                entries.append(entry)
            what = _fault(text, entry)
            if what:
                faults.append((f"{name}:{number}", what))
    return AuditLog(tuple(entries), tuple(faults[:MOST_FAULTS]))


def _entry(text: bytes) -> Entry | None:
    try:
        return read_text(text, Entry) if len(text) <= MOST_LINE_BYTES else None
    except BadShape:
        return None


def _fault(text: bytes, entry: Entry | None) -> str:
    """Return what is wrong with a line of the log; "": nothing."""
    if entry is None:
        return "no entry: cut off, as by a power cut, or edited" if text else ""
    if not entry.missed:
        return ""
    return (
        f"{entry.missed} entries before it could not be written: {entry.host}'s disk was full or "
        "refused them"
    )
