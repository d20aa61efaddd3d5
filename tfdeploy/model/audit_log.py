"""Reads a host's audit log: a JSON object a line, appended by the agents of that host. Pure.

The account that the log is about can rewrite it: docs/audit.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tfdeploy.model.answers.audit import Entry
from tfdeploy.model.answers.reading import BadShape, read_text

LOG, OLDER_LOG = "log.jsonl", "log.1.jsonl"
MOST_LINES = 50_000
MOST_LINE_BYTES = 1 << 15
MOST_FAULTS = 100


@dataclass(frozen=True)
class LogFault:
    """`line`: "log.jsonl:17"."""

    line: str
    what: str


@dataclass(frozen=True)
class AuditLog:
    entries: tuple[Entry, ...]
    faults: tuple[LogFault, ...]


def read_log(older: bytes, newer: bytes) -> AuditLog:
    """Return the entries of both files of a log, and the lines that are none."""
    entries: list[Entry] = []
    faults: list[LogFault] = []
    for line, text in _lines(older, newer):
        entry = _entry(text)
        if entry is None:
            faults.append(LogFault(line, "no entry: cut off, as by a power cut, or edited"))
            continue
        entries.append(entry)
        if entry.missed:
            what = f"{entry.missed} entries before it could not be written: {entry.host}'s disk was full or refused them"
            faults.append(LogFault(line, what))
    return AuditLog(tuple(entries), tuple(faults[:MOST_FAULTS]))


def _lines(older: bytes, newer: bytes) -> Iterator[tuple[str, bytes]]:
    for name, content in ((OLDER_LOG, older), (LOG, newer)):
        for number, text in enumerate(content.split(b"\n", MOST_LINES), 1):
            if text:
                yield f"{name}:{number}", text


def _entry(text: bytes) -> Entry | None:
    if len(text) > MOST_LINE_BYTES:
        return None
    try:
        return read_text(text, Entry)
    except BadShape:
        return None
