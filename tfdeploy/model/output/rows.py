"""What the verbs print with --json, a row for each host or run. The tables for people are made from
the same rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypedDict

from tfdeploy.errors import TfdeployError
from tfdeploy.model.answers.clean import Kind
from tfdeploy.model.json_words import IsoTime, RunState


class HostRow(TypedDict):
    """A row of any verb that asks hosts. `error`: in words; None: there is none."""

    host: str
    error: str | None


class OkRow(HostRow):
    ok: bool


SyncRow = TypedDict(  # `from` is no name for a class's field
    "SyncRow",
    {
        "host": str,
        "ok": bool,
        "release": str | None,
        "bytes_sent": int,
        "from": str | None,  # "control"
        "seconds": float | None,
        "error": str | None,
    },
)


# from "control": this machine
FeedRow = TypedDict("FeedRow", {"from": str, "to": str, "stripe": int})
SlowestRow = TypedDict("SlowestRow", {"host": str, "from": list[str], "rate": float})


class BroadcastRow(TypedDict):
    """One data set, sent to several hosts at once."""

    what: str  # data NAME
    hosts: int  # that received something
    bytes: int  # to the one that received most
    bytes_from_here: int
    seconds: float
    rate: float  # bytes a second
    stripes: int
    feeds: list[FeedRow]
    # the slowest link, and what it allows; None: it was too short to tell
    slowest: SlowestRow | None


class ExpectedRow(TypedDict):
    """One broadcast that a sync would make."""

    what: str
    hosts: int
    bytes: int  # to a host that has nothing of it
    stripes: int
    feeds: list[FeedRow]


class SetupRow(OkRow):
    environment: str | None  # its folder on the host
    python_version: str | None
    by: str | None  # uv, pip
    packages: Mapping[str, str]  # name -> version
    made: bool
    bytes_sent: int
    seconds: float | None


class FetchRow(OkRow):
    files: int
    bytes_received: int
    seconds: float | None
    newer_here: list[str]  # changed on this machine since the last fetch, so not overwritten
    left_there: list[str]  # links that lead out of the folder, not made here


class CleanRow(TypedDict):
    """What `clean` removed, or would remove."""

    kind: Kind | Literal["record"]  # record: what this machine remembers of a run
    job: str | None
    name: str
    bytes: int


class _CleanedRow(OkRow):
    removed: list[CleanRow]


class CleanedRow(_CleanedRow, total=False):
    """`host`: the last one is "this machine"."""

    would_remove: list[CleanRow]  # with --dry-run


class ExecRow(HostRow):
    exit_code: int | None
    stdout: str
    stderr: str
    seconds: float | None


class CheckRow(TypedDict):
    check: str
    ok: bool
    level: Literal["error", "warning"]  # counts where it is not ok
    detail: str
    fix: str | None


class CheckedHostRow(TypedDict):
    """`ok`: no check of it is an error."""

    host: str
    ok: bool
    checks: list[CheckRow]


LinkRow = TypedDict(
    "LinkRow",
    {
        "from": str,
        "to": str,
        "port": int,
        "ok": bool,
        "why": str | None,
        "fix": str | None,
        "ms": float | None,
        "mbit_s": float | None,
    },
)


class Survivor(TypedDict):
    """A process that stop did not end."""

    pid: int
    state: str
    command: str


class StopRow(OkRow):
    survivors: list[Survivor]
    had_ended: bool


class KnownKeyRow(TypedDict):
    """A line of known_hosts that names the host."""

    keytype: str
    fingerprint: str
    place: str  # file:line
    marker: str | None  # @revoked, @cert-authority
    writable: bool  # tfdeploy may write the file


class TrustRow(HostRow):
    state: str  # known, new, recorded, changed, renewed, revoked, unreachable
    fingerprint: str | None
    keytype: str | None
    on_record: list[KnownKeyRow]


class KnownRunRow(TypedDict):
    """A run, as `runs --json` prints it."""

    run: str
    job: str
    state: RunState | None  # None: not known here
    live: bool | None
    started: IsoTime | None
    ended: IsoTime | None
    tasks: int
    hosts: list[str]
    who: str | None


class RunRow(KnownRunRow, total=False):
    damaged: dict[str, str]  # host -> what is wrong with its files of the run
    differ: TfdeployError  # hosts hold different plans of it
    doubt: str  # why nobody knows when it began


class _AuditEntryRow(TypedDict):
    time: IsoTime  # by the host's clock
    host: str
    operator: str | None  # user@machine, as that machine said
    user: str  # the account on the host
    key: str | None  # fingerprint
    key_by: str | None  # which side said so: "sshd" or "operator"
    verb: str
    job: str | None
    run: str | None
    outcome: str
    version: str


_From = TypedDict("_From", {"from": str | None})  # the client's address, as sshd says


class AuditEntryRow(_AuditEntryRow, _From):
    pass


class AuditPortRow(TypedDict):
    host: str
    port: int
    task: str | None  # None: the mesh's
    protect: str


class AuditAdmittedRow(TypedDict):
    """An address that `host` lets in at the ports of its tasks since `of`, a host of the run,
    stated it after the launch."""

    host: str
    address: str
    of: str


class AuditSecretRow(TypedDict):
    """`delivered` and `forgotten`: None where the host did not answer."""

    host: str
    run: str
    name: str
    delivered: bool | None
    forgotten: bool | None


class AuditLeftRow(TypedDict):
    host: str
    kind: str
    path: str


class AuditFaultRow(TypedDict):
    """A line of a host's audit log that is no entry, or entries that could not be written.
    `harmless`: always true; older versions also told an edit."""

    host: str
    line: str
    what: str
    harmless: bool


class AuditVersionRow(TypedDict):
    host: str
    tfdeploy: str
    agent: str
    python: str  # that the agent runs on
    tensorflow: str | None
