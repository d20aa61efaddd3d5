"""Define the types of JSON objects in small files and in messages between minders, except the
records of `wire`. For annotations only.

No process of the agent loads this module, because `typing` would take some 4 ms of each start. A
module that reads such an object checks it first (mesh/bounded_json.py, run/check_files.py). Keys of
a class with total=False may be missing; the comment of a key says why. "0.1.0, restarts" names the
version and the feature that added the key: older runs lack it. Times are UTC seconds.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple, TypedDict

Unchecked = Dict[str, Any]  # an object of JSON whose keys are not checked yet
# The answer of a verb, or an object in an answer. model/answers/ and model/facts.py have its type.
Answer = Dict[str, Any]
# A word of a task's command or environment: text, or a list that wire.word_of checks and joins.
PlanWord = Any

# --- sent between minders, and written to knowledge.json


class _Abort(TypedDict):
    kind: str  # shared_state.ABORT_KINDS
    reason: str
    time: float


class Abort(_Abort, total=False):
    """Why the run ends."""

    host: str  # the host that ended the run; always written, never required
    grace_s: float  # only if an operator gave a grace time


class _Ending(TypedDict):
    outcome: str  # wire.OUTCOMES
    time: float


class Ending(_Ending, total=False):
    """How one attempt of a task ended. Unknown and false values are left out."""

    host: str
    up: bool
    exit_code: int
    signal: int
    reason: str
    attempt: int  # 0.1.0, restarts; missing: 1
    round: int  # of the gang, when the attempt began. 0.1.0, restarts; missing: 1
    final: bool  # the task does not start again. 0.1.0, restarts; missing: true
    # the task would have restarted if the run had not been over. 0.1.0, restarts; missing: false
    again: bool


class _Death(_Ending):
    task: str
    host: str


class Death(_Death, total=False):
    """The ending that fails a run."""

    up: bool
    exit_code: int
    signal: int
    reason: str
    attempt: int  # this key and the keys below: as in Ending
    round: int
    final: bool
    again: bool


class _FailedStarts(TypedDict):
    count: int
    quick: int  # the latest of them, in a row, that lived shorter than restart.QUICK_S
    delay_s: float  # the pause before the next start


class FailedStarts(_FailedStarts, total=False):
    """Starts that have failed since the last good start."""

    error: str  # TaskStatus.error of the last failed start; left out if it is ""
    same: int  # how many in a row had that error; left out together with `error`


class _GangRound(FailedStarts):
    n: int  # number of the round; 2 for the first restart
    time: float  # when the task died
    task: str  # the task that died


class GangRound(_GangRound, total=False):
    """A restart of the whole gang. 0.1.0, restarts."""

    reason: str  # how that task died, in words; always written, never required


class _RestartCount(FailedStarts):
    attempt: int  # the attempt that died last


class RestartCount(_RestartCount, total=False):
    """The failed starts of one task, in state.json. 0.1.0, restarts."""

    round: int  # the gang's round of that attempt. 0.1.0, one clock for all hosts
    how: str  # how that attempt ended, in words. 0.1.0, one clock for all hosts


class SharedState(TypedDict):
    """The knowledge of a minder as JSON: shared_state.Knowledge."""

    committed: bool
    abort: Optional[Abort]
    ended: Dict[str, Ending]  # by task
    # 0.1.0, restarts: older files lack this key and the keys below
    round: Optional[GangRound]
    stands: Dict[str, List[int]]  # host -> [round, stage]
    decided: Optional[float]
    unminded: Dict[str, List[float]]  # host -> [n, since]


class Health(TypedDict):
    """The health of a stalled task, in state.json. 0.1.0, stalls."""

    word: str  # "stalled"
    attempt: int
    reason: str
    since: float  # when the task was last seen active


# --- small files of a run


class Word(TypedDict, total=False):
    """A file word.*: an order that serve leaves for the minder."""

    time: float  # always written
    reason: str  # of abort
    grace_s: float  # of stop


class StopOrder(TypedDict):
    """The file stop.json: the order that the minder writes for a supervisor before it sends
    TERM."""

    reason: str
    grace_s: float
    # "stopped", or "failed" for the task that caused a stall. 0.1.0, stalls; missing: stopped
    outcome: str


class Certificates(TypedDict):
    """The file mesh.json, as PEM."""

    ca: str
    cert: str
    key: str


class Origin(TypedDict, total=False):
    """The machine that wrote a file. state.json has these fields too."""

    boot_id: str
    hostname: str
    place: str  # run.find.boot_name(). 0.1.0, cloned machines; missing: the hostname decides


class JournalLine(TypedDict):
    """The keys that every line of a journal has. Its other keys are for people."""

    v: int
    time: float
    what: str


class MinderAnswer(TypedDict, total=False):
    """The report of a new minder about its start. It has one of the keys `ok`, `port`,
    `firewall`."""

    ok: bool
    port: int  # the port that another process holds
    firewall: str  # why the firewall could not be made


class ShownPlan(TypedDict):
    """The keys of plan.json that a host reads. The control side reads all keys:
    model/hostplan.py."""

    operator: str  # "unknown" if the plan names none
    created: object  # sent back to the control side unchanged
    data: Optional[List[str]]  # names of data sets; None: the plan does not list them


class _AuditEntry(TypedDict):
    time: float
    host: str  # this machine's name in the operator's inventory
    user: str  # the account on this host
    operator: Optional[str]  # user@machine, as the operator's machine states it
    command: Optional[str]  # random id of one command line of the operator
    key: Optional[str]  # fingerprint of the SSH key
    key_by: Optional[str]  # which side stated the key: "sshd" or "operator"
    verb: str  # verb of the command line
    job: Optional[str]
    run: Optional[str]
    outcome: str
    secrets: List[str]  # names of the secrets that the call delivered
    version: str
    agent: str


_From = TypedDict("_From", {"from": Optional[str]})  # the client's address, as sshd states it


class AuditEntry(_AuditEntry, _From, total=False):
    """A line of an audit log: serve/audit_log.py."""

    missed: int  # earlier entries of this session that could not be written


# --- samples: each is a line of SAMPLES


class _Sample(TypedDict):
    time: float  # by the run's clock


class TaskSample(_Sample, total=False):
    """A sample of one task. Keys that were not measured are missing."""

    attempt: int
    cpu: float  # cores in use since the previous sample
    memory: int  # bytes of its processes in memory
    # metrics that the task has printed, or written to event files, since the previous sample
    printed: Dict[str, float]
    # In NEWEST_SAMPLES: when the step was written, by the run's clock, if it is from event files.
    step_time: float
    # In NEWEST_SAMPLES: when each counter of STEP_COUNTERS was last printed, by the run's clock.
    step_times: Dict[str, float]
    # In NEWEST_SAMPLES: metrics that are "nan", "inf" or "-inf".
    not_finite: Dict[str, str]
    # In NEWEST_SAMPLES: metrics that are no longer read, because their patterns take too long.
    stopped: List[str]


class HostSample(_Sample, total=False):
    cpu: float  # cores in use by all processes
    memory: int  # bytes in use
    rates: Dict[str, int]  # bytes a second: received, sent, read, written
    # of each GPU: index, percent busy, bytes in use, bytes in total; null: unknown
    gpus: List[List[Any]]


class NewestSamples(TypedDict):
    host: HostSample
    tasks: Dict[str, TaskSample]  # `printed` has all metrics that are known so far


# --- small files of a job


class LockHolder(TypedDict, total=False):
    """The content of a lock file, as an operator's machine sent it. The machine that reads it back
    checks it."""

    user: object
    machine: object
    pid: object
    time: object
    operation: object
    of_host: str  # what the holder's inventory calls this machine. 0.1.0, cloned machines


class Fence(LockHolder):
    """The file beside a lock with the last holder and the fencing number."""

    number: int


class DataMarker(TypedDict):
    """The file data/<name>.tfdeploy, which marks the folder as ours."""

    v: int
    time: float
    name: str
    id: str  # random: hosts that share the folder see the same one


class DataRecord(TypedDict):
    """The file data/<name>.json, which records that the folder is complete."""

    v: int
    time: float
    digest: str
    attributes: str  # "": not recorded, because an older version or rsync brought the data
    parts: Optional[DataParts]  # None: the data set has no parts


class DataParts(TypedDict):
    """The assignment of the files of a data set with `split` to its parts."""

    count: int  # of parts, on all hosts
    # The part of each row, or NO_PART, in the order of listing.walk: two bytes per row, low byte
    # first, compressed by zlib, in base64.
    of: str


class ReleaseRecord(TypedDict, total=False):
    """The file releases/<hash>.json. `entries`: the values of release_manifest.Entry, as lists."""

    v: int
    entries: List[Tuple[str, str, int, str, str, int]]
    release: str
    time: float


class EnvironmentRecord(TypedDict):
    """The file .envs/<name>.json, which records that the environment is complete."""

    v: int
    time: float
    by: str  # "uv" or "pip"
    python: str  # version of the interpreter
    packages: Dict[str, str]
