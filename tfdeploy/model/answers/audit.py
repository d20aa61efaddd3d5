"""Define the answer of the agent's verb `audit`. Read a host's audit log, in which each line is one
JSON object. The functions are pure.

The user account whose actions are logged can also change the log: see "What the log is worth" in
docs/audit.md.
"""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

from msgspec import Meta

from tfdeploy.text.typed import (
    Answer,
    Count,
    EmptyAnswer,
    InvalidJsonValue,
    Line,
    Name,
    Seconds,
    StreamingVerb,
    Text,
    decode_untrusted,
)

LeftoverKind = Literal[
    "secret", "secret file", "half a run", "a launch that did not end", "half", "foreign", "process"
]


class Leftover(Answer):
    kind: LeftoverKind
    path: Text


class RunWithSecrets(Answer):
    job: Name
    run: Name
    host: Name


class AdmittedAddress(Answer):
    address: Line
    of: Line


class AuditReport(Answer):
    """`left`: files and processes that no run needs. `held`: the runs whose secrets are on this
    host. `tensorflow`: the version of TensorFlow that the interpreter named in the request has.
    `admitted`: the addresses that the requested run has admitted since its launch."""

    left: Annotated[list[Leftover], Meta(max_length=1000)]
    held: Annotated[list[RunWithSecrets], Meta(max_length=10_000)]
    tensorflow: Line | None
    admitted: Annotated[list[AdmittedAddress], Meta(max_length=1000)] = []


class AuditEntry(Answer, rename={"client": "from"}):
    """One line of an audit log, with the fields that agent/shapes.py defines. `client`: the line's
    field "from". Every text of a line may come from a hostile host.

    Lines of older versions have more fields, such as a hash of the previous line. These fields are
    ignored.
    """

    time: Seconds
    host: Line
    user: Line
    verb: Line
    outcome: Line
    operator: Line | None = None
    command: Line | None = None
    client: Line | None = None
    key: Line | None = None
    key_by: Literal["sshd", "operator"] | None = None
    job: Name | None = None
    run: Name | None = None
    secrets: Annotated[list[Line], Meta(max_length=100)] = []
    version: Line = ""
    agent: Line = ""
    missed: Count = 0


AUDIT = StreamingVerb(
    "audit", EmptyAnswer, AuditReport
)  # the blob of each item is one compressed file of the log


LOG, OLDER_LOG = "log.jsonl", "log.1.jsonl"
MOST_LINES = 50_000  # the most lines that are read of each file
MOST_LINE_BYTES = 1 << 15  # a longer line is reported as a fault, not as an entry
MOST_FAULTS = 100  # the most faults that are returned for one log


class AuditLog(NamedTuple):
    """The entries of a log. `faults`: pairs of a line such as "log.jsonl:17" and what is wrong with
    it."""

    entries: tuple[AuditEntry, ...]
    faults: tuple[tuple[str, str], ...]


def parse_audit_log(older: bytes, newer: bytes) -> AuditLog:
    """Return the entries of both files of a log. In the result, `faults` holds each line that
    is not an entry, and each line that reports a failure to write earlier entries."""
    entries: list[AuditEntry] = []
    faults: list[tuple[str, str]] = []
    for name, content in ((OLDER_LOG, older), (LOG, newer)):
        for number, text in enumerate(content.split(b"\n", MOST_LINES), 1):
            entry = _parse_entry(text)
            if entry is not None:
                entries.append(entry)
            if fault := _describe_fault(text, entry):
                faults.append((f"{name}:{number}", fault))
    return AuditLog(tuple(entries), tuple(faults[:MOST_FAULTS]))


def _parse_entry(line: bytes) -> AuditEntry | None:
    try:
        return decode_untrusted(line, AuditEntry) if len(line) <= MOST_LINE_BYTES else None
    except InvalidJsonValue:
        return None


def _describe_fault(line: bytes, entry: AuditEntry | None) -> str:
    """Return what is wrong with a line of the log; "" if nothing is wrong."""
    if entry is None:
        return (
            "not an entry: the line was edited, or cut off, for example by a power cut"
            if line
            else ""
        )
    if not entry.missed:
        return ""
    return (
        f"{entry.missed} entries before this line could not be written: {entry.host}'s disk was "
        "full or refused them"
    )
