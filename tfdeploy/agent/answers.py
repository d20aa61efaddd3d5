"""What each verb answers, as docs/agent-protocol.md has it. For annotations alone: no process of the agent loads this module.

The control side checks all of it against its own types, tfdeploy/model/answers/; a test asks every verb and compares its answer
with those. Keys in a class with total=False may be missing: each comment says when.
"""

from __future__ import annotations

from typing import Dict, List, Mapping, Optional, Tuple, TypedDict

Fields = Mapping[str, object]  # of a record of wire: to_wire


class Nothing(TypedDict):
    """The answer of verbs that only have an effect, and the end of streams that have no result."""


class Free(TypedDict):
    """The free space of a disk; in the details of errors too."""

    free_bytes: int
    free_inodes: Optional[int]  # None: its file system has no fixed number of them


class Failure(TypedDict):
    """The error that any verb answers with."""

    code: str
    what: str
    where: Optional[str]
    advice: Optional[str]  # the name of a line of model/advice.py
    details: Mapping[str, object]  # by code and advice


class Hello(TypedDict):
    version: str
    agent: str
    home: str
    user: str
    workdir: str
    boot_id: str
    hostname: str
    python: str
    python_version: str
    clock: float  # UTC
    ssh_connection: Optional[str]
    pid: int


class Clock(TypedDict):
    clock: float  # UTC


class Held(TypedDict):
    held: bool
    fence: int


# --- links between hosts


class Listening(TypedDict):
    ports: List[int]  # those on which it listens now
    taken: Dict[str, str]  # port -> why it does not


class Knocked(TypedDict):
    """`failed`: those links that do not work, by their place in what was asked: [place, why, detail]."""

    asked: int
    failed: List[Tuple[int, str, str]]


class Measured(TypedDict):
    """Of one pair of hosts. None: it could not be measured, and `why` says so."""

    ms: Optional[float]  # there and back
    to_mbit_s: Optional[float]
    from_mbit_s: Optional[float]
    why: str


# --- files


class Present(TypedDict):
    present: bool
    base: Optional[str]


class ReleaseBegun(TypedDict):
    staging: str
    missing: List[str]
    linked: int
    rsync: bool


class Changed(TypedDict):
    changed: List[str]


class DataState(TypedDict):
    digest: str
    attributes: str
    parts: str  # data_parts.name_of


class DataHeld(TypedDict):
    held: str  # as DataLack.lacking
    parts: str  # zlib in base64 of two bytes for each of these files, low byte first: its part, or 65535
    folder_id: str


class Looked(TypedDict, total=False):
    bytes: int  # of the packed listing, in each item
    folder: bool
    stamp: str


class DataLack(TypedDict):
    lacking: str  # zlib in base64 of a bitmap over the rows of the listing, the first row in the lowest bit of the first byte
    lacking_bytes: int
    folder_id: str  # of the folder, for hosts that share one


class Joined(TypedDict, total=False):
    port: Optional[int]  # the first item
    have: int
    received: int
    stripes: List[int]  # of `have`, what is in each stripe
    failed: List[str]  # [parent, word, why]


class Leaves(TypedDict):
    leaves: str  # of a segment's pieces, in hexadecimal


class Wanted(TypedDict):
    wanted: str  # bitmap of pieces, in hexadecimal


class Folder(TypedDict):
    folder: str


class DataPlace(Folder, total=False):
    files: int  # this one and the next: only under `ask`, where the folder has another state
    losing: int


class DataCommitted(TypedDict):
    digest: str
    ok: bool


class Missing(TypedDict):
    missing: List[str]


class Rows(TypedDict):
    rows: List[Tuple[str, int, int, Optional[str]]]  # path, size, mtime_ns, a link's target


class Listed(TypedDict):
    root: str
    sharing: List[str]


class Sum(TypedDict):
    sum: Tuple[str, Optional[str]]  # path, sha256 of its first so many bytes


class FileRead(TypedDict):
    file: Tuple[str, Optional[int], int]  # path, mtime_ns, mode; mtime_ns None: it has gone, or is shorter


class LogSum(TypedDict):
    first: int
    end: int
    sha256: str


# --- programs


class EnvState(TypedDict):
    name: str
    folder: str
    python: str
    python_version: str
    ready: bool
    by: Optional[str]
    packages: Dict[str, str]


class Line(TypedDict):
    line: str


class Waiting(TypedDict):
    waiting: str


class BoardUp(TypedDict):
    port: int
    path: str  # below which it answers; elsewhere it says 404


class BoardEnd(TypedDict):
    code: Optional[int]
    said: str


# --- samples


class AttemptRow(TypedDict):
    """One start of a task. `ended` None: it goes on, or its end was not written."""

    number: int
    started: float
    ended: Optional[float]
    outcome: Optional[str]
    exit_code: Optional[int]
    signal: Optional[int]
    reason: Optional[str]


class SampledHost(TypedDict):
    cores: int
    memory: Optional[int]  # bytes in all; None: the kernel does not say
    attempts: Dict[str, List[AttemptRow]]  # by task, the newest hundred


# --- runs


class Prepared(TypedDict):
    prepared: bool


class Survivor(TypedDict):
    pid: int
    state: str
    command: str


class Aborted(TypedDict, total=False):
    survivors: List[Survivor]  # missing where the host does not know the run


class Ended(TypedDict):
    survivors: List[Survivor]
    seconds: float
    messenger: bool
    had_ended: bool


class Resumed(TypedDict):
    resumed: bool


class KnownEnd(TypedDict):
    known: Optional[str]


class ShutPort(TypedDict):
    host: str
    task: str  # "" for the mesh's
    address: str
    why: str


class Links(TypedDict):
    asked: List[str]
    shut: List[ShutPort]


class Standing(TypedDict):
    host_state: Fields
    tasks: List[Fields]
    live: bool
    left: bool
    committed: bool


class StandingWithSamples(Standing):
    samples: Optional[Fields]  # NewestSamples of shapes.py; None: none was taken


class KnownHere(Standing):
    run: str
    job: str


class DamagedHere(KnownHere):
    """A run whose files cannot be read."""

    damaged: Optional[str]


class StateNews(TypedDict):
    host_state: Fields


class TaskNews(TypedDict):
    task: Fields


class _LogPiece(TypedDict):
    task: str
    offset: int
    records: List[List[float]]  # offset in the blob, UTC seconds, stream, attempt


class LogPiece(_LogPiece, total=False):
    gone: int  # bytes that rotation removed before they were read; missing: none


class LogEnd(TypedDict):
    ended: bool
    left: bool
    cursors: Dict[str, int]
    ends: Dict[str, int]


# --- audit


class LeftHere(TypedDict):
    kind: str
    path: str


class HeldSecrets(TypedDict):
    """The secrets of a run lie here, in the folder of `host`."""

    job: str
    run: str
    host: str


class AdmittedHere(TypedDict):
    """An address that `of`, a host of the run, stated over the mesh after the launch."""

    address: str
    of: str


class AuditHere(TypedDict):
    admitted: List[AdmittedHere]
    left: List[LeftHere]
    held: List[HeldSecrets]
    tensorflow: Optional[str]


# --- clean


class CleanItem(TypedDict):
    """A thing that may go, or that stays: then `stays` says why. `ended`: of a run; None: it has not, or is none."""

    kind: str
    job: str
    name: str
    bytes: int
    ended: Optional[float]
    stays: str
    live: bool


class CleanList(TypedDict):
    """`workdir_id`: equal on hosts that share the workdir; "": not known. `jobs`: all of this workdir."""

    workdir_id: str
    jobs: List[str]
