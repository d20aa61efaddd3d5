"""Checks a host's audit log: each line has the hash of the line before it. Pure.

A host that was broken into can write a new chain. What it cannot do is keep the hash that this machine remembers of the old one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tfdeploy.model.answers.audit import Entry
from tfdeploy.model.answers.reading import BadShape, read_text

LOG, OLDER_LOG = "log.jsonl", "log.1.jsonl"
MOST_LINES = 50_000
MOST_LINE_BYTES = 1 << 15
MOST_FAULTS = 100


@dataclass(frozen=True)
class Tail:
    """The last entry of a log: its number and the sha256 of its line."""

    n: int
    hash: str


@dataclass(frozen=True)
class ChainFault:
    """`line`: "log.jsonl:17". `harmless`: a power cut leaves the same."""

    line: str
    what: str
    harmless: bool = False


@dataclass(frozen=True)
class Chain:
    entries: tuple[Entry, ...]
    faults: tuple[ChainFault, ...]
    tail: Tail | None


def check_chain(older: bytes, newer: bytes, remembered: Tail | None = None) -> Chain:
    """The entries of both files of a log, and what is wrong with them. `remembered`: its tail when it was last seen."""
    entries: list[Entry] = []
    hashes: dict[int, str] = {}
    faults: list[ChainFault] = []
    before: _Line | None = None
    for line in _lines(older, newer):
        faults += _faults(line, before)
        if line.entry is not None:
            entries.append(line.entry)
            hashes[line.entry.n] = line.hash
        if not line.is_torn:
            before = line
    tail = Tail(entries[-1].n, hashes[entries[-1].n]) if entries else None
    faults += _since(hashes, tail, remembered)
    return Chain(tuple(entries), tuple(faults[:MOST_FAULTS]), tail)


@dataclass(frozen=True)
class _Line:
    place: str
    text: bytes
    first: bool  # of its file
    has_older: bool  # there is a file before its file
    older_n: int  # number of the first entry of that file
    entry: Entry | None
    is_torn: bool = False  # cut off by a power cut, as the next entry says, or the file's end
    is_end: bool = False

    @property
    def hash(self) -> str:
        return hashlib.sha256(self.text).hexdigest()


def _lines(older: bytes, newer: bytes) -> Iterator[_Line]:
    older_n = 0
    for name, content in ((OLDER_LOG, older), (LOG, newer)):
        *texts, rest = content.split(b"\n", MOST_LINES)
        read = [*((text, False) for text in texts), *([(rest, True)] if rest else [])]
        parsed = [_entry(text) for text, _ in read]
        said = [entry.torn if entry is not None else "" for entry in (*parsed[1:], None)]
        for at, (text, is_end) in enumerate(read):
            is_torn = is_end or (said[at] != "" and hashlib.sha256(text).hexdigest() == said[at])
            entry = None if is_torn else parsed[at]
            has_older = name == LOG and bool(older)
            yield _Line(f"{name}:{at + 1}", text, at == 0, has_older, older_n, entry, is_torn, is_end)
        older_n = next((entry.n for entry in parsed if entry is not None), 0)


def _entry(text: bytes) -> Entry | None:
    if len(text) > MOST_LINE_BYTES:
        return None
    try:
        return read_text(text, Entry)
    except BadShape:
        return None


def _faults(line: _Line, before: _Line | None) -> Iterator[ChainFault]:
    if line.is_torn:
        yield ChainFault(line.place, "cut off in the middle, as by a power cut", harmless=True)
        return
    if line.entry is None:
        yield ChainFault(line.place, "no entry: it was edited")
        return
    if line.entry.missed:
        what = f"{line.entry.missed} entries before it could not be written: {line.entry.host}'s disk was full or refused them"
        yield ChainFault(line.place, what, harmless=True)
    yield from _beginning(line, line.entry) if before is None or line.first else ()
    if before is not None and before.entry is not None and line.entry.prev != before.hash:
        yield _gap(line, line.entry, before, before.entry)


def _beginning(line: _Line, entry: Entry) -> Iterator[ChainFault]:
    """The first line of a file. Lines may be missing before it only where the log was rotated twice."""
    if line.has_older and entry.older != line.older_n:
        yield ChainFault(f"{OLDER_LOG}:1", f"lines were removed before it: it began with entry {entry.older}")
    elif not line.has_older and line.place.startswith(LOG) and entry.n > 1:
        yield ChainFault(line.place, f"{entry.n - 1} entries were removed before it")
    elif entry.n == 1 and entry.prev:
        yield ChainFault(line.place, "the first entry goes on from another: it was edited")


def _gap(line: _Line, entry: Entry, previous: _Line, before: Entry) -> ChainFault:
    lacking = entry.n - before.n - 1
    if lacking == 0:
        return ChainFault(previous.place, "edited: its hash is not the one that the next entry has")
    if lacking > 0:
        return ChainFault(line.place, f"{lacking} entries before it were removed")
    return ChainFault(line.place, "does not go on from the line before it")


def _since(hashes: dict[int, str], tail: Tail | None, remembered: Tail | None) -> Iterable[ChainFault]:
    if remembered is None:
        return
    if tail is None or tail.n < remembered.n:
        what = (
            f"its end was cut off: it had {remembered.n} entries when this machine last looked, and has {tail.n if tail else 0}"
        )
        yield ChainFault(LOG, what)
    elif remembered.n in hashes and hashes[remembered.n] != remembered.hash:
        yield ChainFault(LOG, f"written anew: entry {remembered.n} is not the one that this machine saw last")
