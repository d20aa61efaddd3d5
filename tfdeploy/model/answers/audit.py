"""Define the answer of `audit`, and the lines of a host's audit log."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from tfdeploy.model.typed import (
    Answer,
    Count,
    EmptyAnswer,
    Line,
    Name,
    Seconds,
    StreamingVerb,
    Text,
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
    host. `tensorflow`: the version that the requested interpreter has. `admitted`: the addresses
    that the requested run has admitted since its launch."""

    left: Annotated[list[Leftover], Meta(max_length=1000)]
    held: Annotated[list[RunWithSecrets], Meta(max_length=10_000)]
    tensorflow: Line | None
    admitted: Annotated[list[AdmittedAddress], Meta(max_length=1000)] = []


class AuditEntry(Answer, rename={"client": "from"}):
    """A line of the log, as agent/shapes.py has it. `client`: its "from". Any text in it may be
    hostile.

    Older versions wrote more fields: each line had a hash of the line before it.
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
)  # the blob of each item is a packed file of the log
