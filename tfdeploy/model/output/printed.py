"""Define the complete output of each verb with --json, and its JSON Schema. Keys and allowed texts
are only added, never removed.

The rows of hosts are in rows.py, the row of a task is in status/task_status.py. docs/json has the
schemas, docs/json.md their examples.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypedDict

import msgspec
from msgspec import Meta

from tfdeploy.model.output import rows
from tfdeploy.model.plan import Plan
from tfdeploy.model.report.compare import Difference, Final, LinesOfFile
from tfdeploy.model.status.run_status import RunAnswer
from tfdeploy.text.typed import msgspec_lock

DRAFT = "https://json-schema.org/draft/2020-12/schema"


class ErrorParts(TypedDict):
    code: Annotated[int, Meta(description="the exit code")]
    what: str
    where: str | None
    next: Annotated[str | None, Meta(description="what to type next")]


class ErrorAnswer(TypedDict):
    error: ErrorParts


class InitAnswer(TypedDict):
    written: Sequence[str]
    kept: Annotated[
        Sequence[str], Meta(description="files that were not written, because they already existed")
    ]


# The fields of model.inventory.Host. A class cannot have a field with the name `from`, which is a
# keyword, so TypedDict is called.
InventoryHostRow = TypedDict(
    "InventoryHostRow",
    {
        "name": str,
        "address": str,
        "port": int | None,
        "user": str | None,
        "identity_file": str | None,
        "known_hosts": str | None,
        "jump": str | None,
        "python": str,
        "workdir": str,
        "ports": tuple[int, int],
        "gpus": Annotated[
            str | int | list[int],
            Meta(description="auto, none, a count or the numbers of the GPUs"),
        ],
        "slots": int | None,
        "advertise": str | None,
        "bwlimit": int | None,
        "reserve": int,
        "source": Annotated[str, Meta(description="file:line")],
        "roles": list[str],
        "from": Annotated[Mapping[str, str | None], Meta(description="setting -> file:line")],
    },
)


class InventoryAnswer(TypedDict):
    inventory: str
    hosts: Sequence[InventoryHostRow]
    roles: Mapping[str, Sequence[str]]


class TrustAnswer(TypedDict):
    ok: bool
    hosts: Sequence[rows.TrustRow]


class CheckAnswer(TypedDict):
    ok: Annotated[bool, Meta(description="also true if there are warnings")]
    hosts: Sequence[rows.CheckedHostRow]
    links: Sequence[rows.LinkRow]


class SyncAnswer(TypedDict):
    ok: bool
    hosts: Sequence[rows.SyncRow]
    broadcasts: Sequence[rows.BroadcastRow]


class ForecastAnswer(TypedDict):
    ok: bool
    dry_run: Annotated[bool, Meta(extra_json_schema={"enum": [True]})]
    hosts: Sequence[rows.SyncRow]
    broadcasts: Sequence[rows.ExpectedRow]


class PackageRow(TypedDict):
    package: str
    versions: Annotated[
        Mapping[str, Sequence[str]],
        Meta(description="version -> hosts with this version; key '' -> hosts without the package"),
    ]


class SetupAnswer(TypedDict):
    ok: bool
    hosts: Sequence[rows.SetupRow]
    differences: Sequence[PackageRow]


class StoppedRow(rows.OkRow):
    survivors: Annotated[Sequence[int], Meta(description="pids")]


class StopAnswer(TypedDict):
    run: str
    ok: bool
    hosts: Sequence[StoppedRow]


class RunsAnswer(TypedDict):
    runs: Sequence[rows.KnownRunRow]
    unreachable: Sequence[str]


class ReportAnswer(TypedDict):
    run: str
    file: str


class ServedAnswer(TypedDict):
    run: str
    url: str


class CompareAnswer(TypedDict):
    runs: Sequence[str]
    differs: Sequence[Difference]
    final: Sequence[Final]
    lines: Annotated[
        Sequence[LinesOfFile],
        Meta(description="lines of the code that differ from the code of the first run"),
    ]


class AuditVersions(TypedDict):
    operator: str
    hosts: Sequence[rows.AuditVersionRow]


class AuditAnswer(TypedDict):
    run: str | None
    ok: bool
    entries: Sequence[rows.AuditEntryRow]
    ports: Sequence[rows.AuditPortRow]
    admitted: Sequence[rows.AuditAdmittedRow]
    secrets: Sequence[rows.AuditSecretRow]
    left: Sequence[rows.AuditLeftRow]
    faults: Sequence[rows.AuditFaultRow]
    versions: AuditVersions
    errors: Sequence[rows.HostRow]


class FetchAnswer(TypedDict):
    run: str
    ok: bool
    to: str
    keep_from: str | None
    hosts: Sequence[rows.FetchRow]


class OntoAnswer(TypedDict):
    job: str
    ok: bool
    keep_from: str | None
    onto: str
    keep: str


class TensorBoardAnswer(TypedDict):
    run: str
    host: str
    url: str


class CleanAnswer(TypedDict):
    ok: bool
    hosts: Sequence[rows.CleanedRow]


class ExecAnswer(TypedDict):
    ok: bool
    hosts: Sequence[rows.ExecRow]


class LabHostRow(TypedDict):
    host: str
    address: str
    port: int
    state: Annotated[str, Meta(extra_json_schema={"enum": ["up", "off", "cut"]})]
    pid: int | None  # the host's first process; None: the host is off
    python: str  # the interpreter of the training programs


class LabAnswer(TypedDict):
    lab: str
    kind: str
    inventory: str
    hosts: Sequence[LabHostRow]


class LabDownAnswer(TypedDict):
    lab: str
    ok: bool


class ReferenceRow(TypedDict):
    key: str
    text: str
    default: str
    example: str


class TopicSection(TypedDict):
    title: str
    rows: list[ReferenceRow]


class TopicAnswer(TypedDict):
    topic: str
    sections: list[TopicSection]


class ReferenceAnswer(TypedDict):
    inventory: list[ReferenceRow]
    host: list[ReferenceRow]
    job: list[ReferenceRow]


class CompletionAnswer(TypedDict):
    shell: str
    script: str


PRINTED: dict[str, Any] = {  # {name of an output: its type}
    "init": InitAnswer,
    "inventory": InventoryAnswer,
    "trust": TrustAnswer,
    "check": CheckAnswer,
    "sync": SyncAnswer,
    "sync-dry-run": ForecastAnswer,
    "setup": SetupAnswer,
    "launch": RunAnswer,
    "launch-dry-run": Plan,
    "logs": rows.LogLineRow,
    "status": RunAnswer,
    "stop": StopAnswer,
    "runs": RunsAnswer,
    "report": ReportAnswer,
    "report-serve": ServedAnswer,
    "compare": CompareAnswer,
    "audit": AuditAnswer,
    "fetch": FetchAnswer,
    "fetch-onto": OntoAnswer,
    "tensorboard": TensorBoardAnswer,
    "clean": CleanAnswer,
    "exec": ExecAnswer,
    "lab": LabAnswer,
    "lab-down": LabDownAnswer,
    "docs": ReferenceAnswer,
    "docs-topic": TopicAnswer,
    "completion": CompletionAnswer,
    "error": ErrorAnswer,
}
# {output: the command that prints it}. An output without an entry is printed by the verb that has
# the output's name.
_PRINTED_BY = {
    "sync-dry-run": "sync --dry-run",
    "launch-dry-run": "launch --dry-run",
    "logs": "logs (each line)",
    "report-serve": "report --serve",
    "fetch-onto": "fetch --onto",
    "lab": "lab up, lab status, lab cut ...",
    "lab-down": "lab down",
    "docs-topic": "docs TOPIC",
    "error": "any verb that fails",
}


def printed_by(name: str) -> str:
    """Return what prints the output: a verb, or a verb with the option or subcommand that selects
    it."""
    return _PRINTED_BY.get(name, name)


def schema_text(name: str) -> str:
    """Return the schema of an output as docs/json has it. Raises KeyError."""
    return json.dumps(schema_of(name), indent=1) + "\n"


def schema_of(name: str) -> dict[str, Any]:
    """Return the JSON Schema of what `name` prints. Raises KeyError."""
    with msgspec_lock:
        schema = msgspec.json.schema(PRINTED[name])
    for definition in schema.get("$defs", {}).values():
        # The description is a docstring. Only Python 3.13 and newer remove its indentation, so the
        # white space is made equal here.
        if "description" in definition:
            definition["description"] = " ".join(definition["description"].split())
    title = printed_by(name) if name == "error" else f"tfdeploy {printed_by(name)}"
    return {"$schema": DRAFT, "title": title, **schema}
