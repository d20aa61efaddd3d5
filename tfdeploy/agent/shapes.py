"""Define the types of JSON objects in small files and in messages between minders (a minder is the
process that manages a run on one host). Only annotations may use these types. The records in
wire.py are not defined here.

No process of the agent loads this module, because `typing` would add about 4 ms to each start. A
module that reads such an object checks it first (mesh/bounded_json.py, run/check_files.py). In a
class with total=False, keys may be missing; the comment on a key says why. "Added in 0.1.0" means
that files of older runs do not contain the key. Times are UTC seconds. The gang of a run is the set
of its tasks that must restart together.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, TypedDict

Unchecked = Dict[str, Any]  # a JSON object that has not been checked yet
# What a verb answers, or an object in such an answer. Its exact type is in model/answers/ or
# model/facts.py.
Answer = Dict[str, Any]
# A word in the command or environment of a task. It is a text, or a list that wire.resolve_word
# checks and joins.
PlanWord = Any

# --- sent between minders, and written to knowledge.json


class _Abort(TypedDict):
    kind: str  # one of shared_state.ABORT_KINDS
    reason: str
    time: float


class Abort(_Abort, total=False):
    """Why the run ends."""

    # The host that ended the run. All versions write this key, but readers accept an object without
    # it.
    host: str
    grace_s: float  # written only if an operator has given a grace time


class _Ending(TypedDict):
    outcome: str  # one of wire.OUTCOMES
    time: float


class _EndingDetails(TypedDict, total=False):
    up: bool
    exit_code: int
    signal: int
    reason: str
    # The number of the attempt. Added in 0.1.0; a missing key means 1.
    attempt: int
    # The number of the gang's latest start when this attempt began; the first start has the number
    # 1. Added in 0.1.0; a missing key means 1.
    round: int
    # True if the task does not start again. Added in 0.1.0; a missing key means true.
    final: bool
    # True if the task would have restarted, but the run was over. Added in 0.1.0; a missing key
    # means false.
    again: bool


class Ending(_Ending, _EndingDetails, total=False):
    """How one attempt of a task ended. Values that are unknown or false are left out."""

    host: str


class Death(_Ending, _EndingDetails):
    """How a task ended, if this ending makes the run fail."""

    task: str
    host: str


class _FailedStarts(TypedDict):
    count: int
    quick: int  # how many of the latest attempts in a row lived less than QUICK_S seconds
    delay_s: float  # the pause before the next start, in seconds


class FailedStarts(_FailedStarts, total=False):
    """The starts of a task, or of the gang, that have failed since the last attempt that lived for
    ten minutes."""

    error: str  # TaskStatus.error of the last failed start; left out if it is ""
    same: int  # how many starts in a row failed with `error`; missing if `error` is missing
    first: str  # how the first of these failed starts ended, in words. Added in 0.1.0.


class _GangRound(FailedStarts):
    n: int  # number of this start of the gang; the first restart is number 2
    time: float  # the time of the death that caused the restart
    task: str  # the name of the task whose death caused the restart


class GangRound(_GangRound, total=False):
    """A restart of the whole gang (the tasks that restart together). Added in 0.1.0."""

    # How the task died, in words. All versions write this key, but readers accept an object without
    # it.
    reason: str


class _RestartCount(FailedStarts):
    attempt: int  # number of the last attempt that died


class RestartCount(_RestartCount, total=False):
    """How often starts of one task have failed, as stored in state.json. Added in 0.1.0."""

    # The number of the gang's latest start when this attempt began; the first start has the number
    # 1. Added in 0.1.0.
    round: int
    how: str  # how the last attempt that died ended, in words. Added in 0.1.0.


class SharedState(TypedDict):
    """The state that minders share, as JSON. It has the content of shared_state.KnownRunState."""

    committed: bool
    abort: Optional[Abort]
    ended: Dict[str, Ending]  # task -> its ending
    # The last restart of the gang. This key and the keys below were added in 0.1.0, so older files
    # do not contain them.
    round: Optional[GangRound]
    # host -> [n, stage]: the host has reached this stage of the gang's start number n
    stands: Dict[str, List[int]]
    decided: Optional[float]
    # host -> [n, since]: an odd n means that the host has had no minder since this time, see
    # shared_state.KnownRunState
    unminded: Dict[str, List[float]]


class Health(TypedDict):
    """The health of a stalled task, as stored in state.json. Added in 0.1.0."""

    word: str  # always "stalled"
    attempt: int
    reason: str
    since: float  # when the task was last active


# --- small files of a run


class MinderOrder(TypedDict, total=False):
    """The content of a file such as word.stop. It is an order to the minder (the run's daemon on
    the host), and is written by `serve` (a session of the agent)."""

    time: float  # always written
    reason: str  # why the run is aborted; only in word.abort
    grace_s: float  # the grace time in seconds; only in word.stop


class StopOrder(TypedDict):
    """The content of stop.json: the minder's order to a supervisor to stop its task. The minder
    writes this file before it sends SIGTERM to the supervisor."""

    reason: str
    grace_s: float
    # The outcome that the task gets: "failed" if the task caused a stall, else "stopped". Added in
    # 0.1.0; a missing key means "stopped".
    outcome: str


class Certificates(TypedDict):
    """The file mesh.json. Its values are in the format PEM."""

    ca: str
    cert: str
    key: str


class FileOrigin(TypedDict, total=False):
    """Identifies the machine that has written a file. state.json contains these keys too."""

    boot_id: str
    hostname: str
    # The value of run.file_origin.boot_and_container_id(), which distinguishes cloned machines.
    # Added in 0.1.0. If the key is missing, run.find compares the hostname instead.
    place: str


class MinderAnswer(TypedDict, total=False):
    """What a new minder reports about its start. Exactly one key is present: `ok`, or what has
    failed (`port` or `firewall`)."""

    ok: bool
    port: int  # a port of the run that another process has taken
    firewall: str  # why the firewall could not be created


class ShownPlan(TypedDict):
    """The keys of plan.json that a host reads. The control machine reads all keys, see
    model/plan_files.py."""

    operator: str  # "unknown" if the plan names no operator
    # The host does not use this value. It returns the value unchanged to the control machine.
    created: object
    data: Optional[List[str]]  # names of data sets; None if the plan does not list them


class _AuditEntry(TypedDict):
    time: float
    host: str  # the name of this machine in the operator's inventory
    user: str  # the user's account on this host
    operator: Optional[str]  # user@machine, as the operator's machine has stated it
    command: Optional[str]  # random id of the operator's command line that has caused the call
    key: Optional[str]  # fingerprint of the SSH key that was used
    key_by: Optional[str]  # who has named the SSH key: "sshd" or "operator"
    verb: str  # the verb of the operator's command line
    job: Optional[str]
    run: Optional[str]
    outcome: str
    secrets: List[str]  # names of the secrets that the call delivered
    version: str
    agent: str


_From = TypedDict("_From", {"from": Optional[str]})  # the client's address, as sshd has reported it


class AuditEntry(_AuditEntry, _From, total=False):
    """One line of an audit log, see serve/audit_log.py."""

    missed: int  # how many entries before this entry, in the same session, could not be written


# --- samples: each of these objects is one line of a file `samples` (layout.SAMPLES). The clock of
# the run is this host's clock, corrected by HostPart.ahead_s.


class _Sample(TypedDict):
    time: float  # when the sample was taken, by the clock of the run


class TaskSample(_Sample, total=False):
    """A sample of one task. Keys whose values were not measured are missing."""

    attempt: int
    cpu: float  # how many CPU cores the task has used on average since the previous sample
    memory: int  # bytes of memory that the task's processes occupy
    # metric -> its newest value, for metrics that the task has printed or written to event files
    # since the previous sample
    printed: Dict[str, float]
    # When the newest step was written, by the clock of the run. Only in the file NEWEST_SAMPLES,
    # and only if the step is from event files.
    step_time: float
    # name of a step counter -> when the counter was last printed, by the clock of the run. Only in
    # NEWEST_SAMPLES.
    step_times: Dict[str, float]
    # metric -> "nan", "inf" or "-inf", for metrics whose newest value is no finite number. Only in
    # NEWEST_SAMPLES.
    not_finite: Dict[str, str]
    # Metrics that are no longer read, because their patterns take too long. Only in NEWEST_SAMPLES.
    stopped: List[str]


class HostSample(_Sample, total=False):
    cpu: float  # how many CPU cores all processes together have used since the previous sample
    memory: int  # bytes of memory in use
    rates: Dict[str, int]  # name -> bytes per second; the names are received, sent, read, written
    # for each GPU: [index, percent busy, bytes in use, bytes in total]; null stands for unknown
    # values
    gpus: List[List[Any]]


class NewestSamples(TypedDict):
    host: HostSample
    tasks: Dict[str, TaskSample]  # `printed` contains the newest values of all known metrics


# --- small files of a job


class LockHolder(TypedDict, total=False):
    """The content of a lock file, as the operator's machine has sent it. Hosts do not check these
    values. An operator's machine checks them when it reads a lock."""

    user: object
    machine: object
    pid: object
    time: object
    operation: object
    # The name of this host in the inventory of the operator who holds the lock. It distinguishes
    # cloned machines. Added in 0.1.0.
    of_host: str


class Fence(LockHolder):
    """The file beside a lock file. It contains the last holder and the fencing number."""

    number: int


class DataMarker(TypedDict):
    """The file data/<name>.tfdeploy. It shows that tfdeploy has created the folder data/<name>."""

    v: int
    time: float
    name: str
    id: str  # a random id; hosts that share the folder read the same id


class DataRecord(TypedDict):
    """What is read from the file data/<name>.json. The file shows that the folder data/<name> is
    complete. It also has the fields `v` and `time`."""

    digest: str
    # Listing.attributes_digest of the data. "" if the data was sent by an older version or by
    # rsync, because these do not record the digest.
    attributes: str
    parts: Optional[DataParts]  # None if the data set is not split into parts


class DataParts(TypedDict):
    """Which part each file of a data set with `split` belongs to."""

    count: int  # how many parts there are on all hosts together
    # For each row, in the order of listing.walk: the number of its part, or NO_PART. Each number
    # has two bytes, low byte first. All these bytes together are compressed by zlib and encoded in
    # base64.
    of: str


class EnvironmentRecord(TypedDict):
    """What is read from the file .envs/<name>.json. The file shows that the environment is
    complete. It also has the fields `v` and `time`."""

    by: str  # "uv" or "pip"
    python: str  # version of the environment's Python interpreter
    packages: Dict[str, str]
