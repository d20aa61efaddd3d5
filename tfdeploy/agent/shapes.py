"""The types of JSON in small files and between minders that is no record of `wire`. For annotations
alone.

No process of the agent loads this module: `typing` would take some 4 ms of each start. A module
that reads such an object checks it first (mesh/bounded_json.py, run/check_files.py). Keys in a
class with total=False may be missing: each says why. "0.1.0, restarts" names the version and the
feature that brought the key: runs begun before lack it. Times are UTC seconds.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple, TypedDict

Unchecked = Dict[str, Any]  # an object of JSON whose keys are not checked yet
# a verb's answer, or an object in one: model/answers/ and model/facts.py have its type
Answer = Dict[str, Any]
# of a task's command or environment: text, or what wire.word_of checks and makes text of
PlanWord = Any

# --- sent between minders, and written to knowledge.json


class _Abort(TypedDict):
    kind: str  # shared_state.ABORT_KINDS
    reason: str
    time: float


class Abort(_Abort, total=False):
    """Why the run ends."""

    host: str  # the host that ended the run; always written, never required
    grace_s: float  # only where an operator gave one


class _Ending(TypedDict):
    outcome: str  # wire.OUTCOMES
    time: float


class Ending(_Ending, total=False):
    """How one attempt of a task ended. What is unknown or false is left out."""

    host: str
    up: bool
    exit_code: int
    signal: int
    reason: str
    attempt: int  # 0.1.0, restarts; missing: 1
    round: int  # of the gang, when the attempt began. 0.1.0, restarts; missing: 1
    final: bool  # the task does not start again. 0.1.0, restarts; missing: true
    # it would have started again, had the run not been over. 0.1.0, restarts; missing: false
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
    attempt: int  # this one and those below: as in Ending
    round: int
    final: bool
    again: bool


class _FailedStarts(TypedDict):
    count: int
    quick: int  # of them, in a row, those that lived shorter than restart.QUICK_S
    delay_s: float  # the pause before the next


class FailedStarts(_FailedStarts, total=False):
    """Starts that have failed since the last good one."""

    error: str  # TaskStatus.error of the last one; left out where it is ""
    same: int  # how many in a row had that error; left out with it


class _GangRound(FailedStarts):
    n: int  # 2 for the first new start
    time: float  # of the death
    task: str  # which died


class GangRound(_GangRound, total=False):
    """A common start of the gang after the first: 0.1.0, restarts."""

    reason: str  # how that task died, in words; always written, never required


class _RestartCount(FailedStarts):
    attempt: int  # that died last


class RestartCount(_RestartCount, total=False):
    """What state.json says of the failed starts of one task: 0.1.0, restarts."""

    round: int  # of that attempt. 0.1.0, one clock for all hosts
    how: str  # it ended, in words. 0.1.0, one clock for all hosts


class SharedState(TypedDict):
    """What a minder writes of all that it knows: shared_state.Knowledge."""

    committed: bool
    abort: Optional[Abort]
    ended: Dict[str, Ending]  # by task
    # 0.1.0, restarts: this one and those below are missing in older files
    round: Optional[GangRound]
    stands: Dict[str, List[int]]  # host -> [round, stage]
    decided: Optional[float]
    unminded: Dict[str, List[float]]  # host -> [n, since]


class Health(TypedDict):
    """What state.json says of a task that stands still: 0.1.0, stalls."""

    word: str  # "stalled"
    attempt: int
    reason: str
    since: float  # last seen to do anything


# --- small files of a run


class Word(TypedDict, total=False):
    """A word.* file: what serve leaves for the minder."""

    time: float  # always written
    reason: str  # of abort
    grace_s: float  # of stop


class StopOrder(TypedDict):
    """stop.json: what the minder tells a supervisor before its TERM."""

    reason: str
    grace_s: float
    outcome: str  # "stopped", or "failed" for a culprit. 0.1.0, stalls; missing: stopped


class Certificates(TypedDict):
    """mesh.json: PEM."""

    ca: str
    cert: str
    key: str


class Origin(TypedDict, total=False):
    """Which machine wrote a file: state.json has these fields too."""

    boot_id: str
    hostname: str
    place: str  # 0.1.0, cloned machines; missing: the hostname decides


class JournalLine(TypedDict):
    """What each line begins with; the rest is for people."""

    v: int
    time: float
    what: str


class MinderAnswer(TypedDict, total=False):
    """What a new minder reports of its start: `ok`, or `port`, or `firewall`."""

    ok: bool
    port: int  # which another process has
    firewall: str  # why there is none


class ShownPlan(TypedDict):
    """The part of plan.json that a host reads. The control side reads all of it:
    model/hostplan.py."""

    operator: str  # "unknown" where it does not say
    created: object  # it goes back to the control side as it is
    data: Optional[List[str]]  # names of data sets; None: it does not say


class _AuditEntry(TypedDict):
    time: float
    host: str  # this machine's name in the operator's inventory
    user: str  # the account here
    operator: Optional[str]  # user@machine, as the operator's machine says
    command: Optional[str]  # a random name of one command line of the operator
    key: Optional[str]  # fingerprint
    key_by: Optional[str]  # which side said so: "sshd" or "operator"
    verb: str  # of the command line
    job: Optional[str]
    run: Optional[str]
    outcome: str
    secrets: List[str]  # names of those that came with it
    version: str
    agent: str


_From = TypedDict("_From", {"from": Optional[str]})  # the client's address, as sshd says


class AuditEntry(_AuditEntry, _From, total=False):
    """A line of an audit log: serve/audit_log.py."""

    missed: int  # entries of this session before it that could not be written


# --- small files of a job


# --- samples: a line of SAMPLES each


class _Sample(TypedDict):
    time: float  # of the run's clock


class TaskSample(_Sample, total=False):
    """Of one task. Keys that were not measured are missing."""

    attempt: int
    cpu: float  # cores in use since the sample before
    memory: int  # bytes that its processes have in memory
    # metrics that it has printed, or written to event files, since the sample before
    printed: Dict[str, float]
    # of the run's clock: when the step was written, if it is of event files; in NEWEST_SAMPLES
    step_time: float
    # In NEWEST_SAMPLES: when each counter of STEP_COUNTERS was printed last, by the run's clock.
    step_times: Dict[str, float]
    not_finite: Dict[str, str]  # in NEWEST_SAMPLES: metrics that are "nan", "inf" or "-inf"
    # metrics that are not read any more: to match their patterns takes too long; in NEWEST_SAMPLES
    stopped: List[str]


class HostSample(_Sample, total=False):
    cpu: float  # cores in use, by whomever
    memory: int  # bytes in use
    rates: Dict[str, int]  # bytes a second: received, sent, read, written
    # of each: index, percent busy, bytes in use, bytes in all; null: it does not say
    gpus: List[List[Any]]


class NewestSamples(TypedDict):
    host: HostSample
    tasks: Dict[str, TaskSample]  # `printed` with all that is known so far


class LockHolder(TypedDict, total=False):
    """The content of a lock file, as the operator's machine gave it: that machine checks it when it
    reads it back."""

    user: object
    machine: object
    pid: object
    time: object
    operation: object
    of_host: str  # what the holder's inventory calls this machine. 0.1.0, cloned machines


class Fence(LockHolder):
    """The file beside a lock: its last holder."""

    number: int


class DataMarker(TypedDict):
    """data/<name>.tfdeploy: the folder is ours."""

    v: int
    time: float
    name: str
    id: str  # random: hosts that share the folder see the same one


class DataRecord(TypedDict):
    """data/<name>.json: the folder is whole."""

    v: int
    time: float
    digest: str
    attributes: str  # "": not recorded, by an older version or because rsync brought it
    parts: Optional[DataParts]  # None: no part of it was told apart


class DataParts(TypedDict):
    """Which files of a data set with `split` are in which part."""

    count: int  # of parts, on all hosts
    # zlib in base64 of two bytes for each row there, in the order of listing.walk, low byte first:
    # its part, or NO_PART
    of: str


class ReleaseRecord(TypedDict, total=False):
    """releases/<hash>.json. `entries` has release_manifest.Entry, as lists."""

    v: int
    entries: List[Tuple[str, str, int, str, str, int]]
    release: str
    time: float


class EnvironmentRecord(TypedDict):
    """.envs/<name>.json: the environment is whole."""

    v: int
    time: float
    by: str  # "uv" or "pip"
    python: str  # its version
    packages: Dict[str, str]
