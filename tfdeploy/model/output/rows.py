"""Define the rows that verbs print with --json, one for each host or run. The tables for people are
made from the same rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypedDict

from tfdeploy.errors import TfdeployError
from tfdeploy.model.answers.clean import Kind
from tfdeploy.text.row_values import IsoTime, RunState


class HostRow(TypedDict):
    """A row of any verb that asks hosts. `error`: the error as text, or null if there is none."""

    host: str
    error: str | None


class OkRow(HostRow):
    ok: bool


# A class cannot have a field with the name `from`, which is a keyword, so TypedDict is called.
SyncRow = TypedDict(
    "SyncRow",
    {
        "host": str,
        "ok": bool,
        "release": str | None,
        "bytes_sent": int,
        "from": str | None,  # the sender: a host, or "control" for this machine
        "seconds": float | None,
        "error": str | None,
    },
)


# In the field `from`, "control" stands for this machine.
FeedRow = TypedDict("FeedRow", {"from": str, "to": str, "stripe": int})
SlowestRow = TypedDict("SlowestRow", {"host": str, "from": list[str], "rate": float})


class BroadcastRow(TypedDict):
    """One data set, sent to several hosts at once."""

    what: str  # "data NAME", with the name of the data set
    hosts: int  # hosts that received something
    bytes: int  # bytes sent to the host that received most
    bytes_from_here: int
    seconds: float
    rate: float  # bytes a second
    stripes: int
    feeds: list[FeedRow]
    # the slowest link and its rate; None: the broadcast was too short to measure a rate
    slowest: SlowestRow | None


class ExpectedRow(TypedDict):
    """One broadcast that a sync would make."""

    what: str
    hosts: int
    bytes: int  # bytes that a host receives if it has nothing of the data set yet
    stripes: int
    feeds: list[FeedRow]


class SetupRow(OkRow):
    environment: str | None  # folder of the environment on the host
    python_version: str | None
    by: str | None  # the installer of the packages: uv or pip
    packages: Mapping[str, str]  # {name: version}
    made: bool
    bytes_sent: int
    seconds: float | None


class FetchRow(OkRow):
    files: int
    bytes_received: int
    seconds: float | None
    # files that changed on this machine since the last fetch, so they were not overwritten
    newer_here: list[str]
    # links that lead out of the folder, so they were not created on this machine
    left_there: list[str]
    # files that the host's user may not read, so they were not fetched
    unreadable: list[str]


class CleanRow(TypedDict):
    """What `clean` removed, or would remove."""

    # the kind of the removed item; "record" is what this machine has recorded about a run
    kind: Kind | Literal["record"]
    job: str | None
    name: str
    bytes: int


class _CleanedRow(OkRow):
    removed: list[CleanRow]


class CleanedRow(_CleanedRow, total=False):
    """`host`: a host's name; in the last row, "this machine"."""

    would_remove: list[CleanRow]  # with --dry-run


class ExecRow(HostRow):
    exit_code: int | None
    stdout: str
    stderr: str
    seconds: float | None


class CheckRow(TypedDict):
    check: str
    ok: bool
    level: Literal["error", "warning"]  # meaningful only if `ok` is false
    detail: str
    fix: str | None


class CheckedHostRow(TypedDict):
    """`ok`: true if no check of the host is an error."""

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
    """A process that is still alive after `tfdeploy stop`."""

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
    place: str  # file:line of the line in known_hosts
    marker: str | None  # @revoked, @cert-authority
    writable: bool  # True if tfdeploy may write the file


class TrustRow(HostRow):
    state: str  # known, new, recorded, changed, renewed, revoked, unreachable
    fingerprint: str | None
    keytype: str | None
    on_record: list[KnownKeyRow]


class LogLineRow(TypedDict):
    time: IsoTime
    run: str
    task: str
    host: str
    attempt: int
    stream: Literal["out", "err"]
    line: str


class KnownRunRow(TypedDict):
    """A run, as `runs --json` prints it."""

    run: str
    job: str
    state: RunState | None  # None: not known to this machine
    live: bool | None
    started: IsoTime | None
    ended: IsoTime | None
    tasks: int
    hosts: list[str]
    who: str | None


class RunRow(KnownRunRow, total=False):
    damaged: dict[str, str]  # {host: what is wrong with the run's files there}
    differ: TfdeployError  # only if the hosts hold different plans of the run
    doubt: str  # why the start time of the run is not known


class _AuditEntryRow(TypedDict):
    time: IsoTime  # by the host's clock
    host: str
    operator: str | None  # user@machine, as the operator's machine reported it
    user: str  # the account on the host
    key: str | None  # fingerprint of the SSH key of the client
    key_by: str | None  # which side reported the key: "sshd" or "operator"
    verb: str
    job: str | None
    run: str | None
    outcome: str
    version: str


_From = TypedDict("_From", {"from": str | None})  # the client's address, as sshd reports it


class AuditEntryRow(_AuditEntryRow, _From):
    pass


class AuditPortRow(TypedDict):
    host: str
    port: int
    task: str | None  # the task that uses the port; None if the minders use it
    protect: str


class AuditAdmittedRow(TypedDict):
    """An address that may connect to the ports of the tasks on `host`, although it is not in the
    plan. After the launch, a host of the run (`of`) stated the address as its own."""

    host: str
    address: str
    of: str


class AuditSecretRow(TypedDict):
    """`delivered`: whether the host got the secret. `forgotten`: whether the host has deleted the
    secret. Both are null if the host did not answer."""

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
    """A line of a host's audit log that is not an entry, or that reports that entries could not be
    written. `harmless`: always true. In older versions, false meant that the log was probably
    edited."""

    host: str
    line: str
    what: str
    harmless: bool


class AuditVersionRow(TypedDict):
    host: str
    tfdeploy: str
    agent: str
    python: str  # version of the Python that runs the agent
    tensorflow: str | None
