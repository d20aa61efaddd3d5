"""Define the records that the control side and the hosts exchange: values of verbs and status
files. VERSION is the version of all of them.

A record travels as the JSON of its fields. A reader ignores fields that it does not know, so that
an old agent and a new tfdeploy (or the reverse) still understand each other.
"""

from __future__ import annotations

import os

from tfdeploy.agent.annotations import TYPE_CHECKING, Any, Dict, List, Optional, Type, V
from tfdeploy.agent.record import field, record
from tfdeploy.agent.record import replace as replace  # for the control side

if TYPE_CHECKING:
    from tfdeploy.agent.shapes import (
        Death,
        Ending,
        GangRound,
        Health,
        PlanWord,
        RestartCount,
        Unchecked,
    )

VERSION = 1

# --- words

RUN_STATES = ("starting", "running", "succeeded", "failed", "stopped", "lost")
TASK_STATES = ("pending", "starting", "running", "ended", "lost")
OUTCOMES = ("succeeded", "failed", "killed", "stopped", "gave_up", "lost")
# Phases of a run on one host, in order. `ended`: no process of the run is alive on that host.
PHASES = ("prepared", "started", "committed", "ending", "ended")

# Limit of Knowledge as JSON: enough for a thousand tasks with long reasons in any script.
MAX_KNOWN_BYTES = 1 << 22

# Environment variable with the run's id, which every process of a task has.
MARKER = "TFDEPLOY_TASK_RUN_ID"
# Environment variables of every task.
TASK_MARKERS = (
    "TFDEPLOY_TASK_RUN_ID",
    "TFDEPLOY_TASK_JOB",
    "TFDEPLOY_TASK_ROLE",
    "TFDEPLOY_TASK_INDEX",
    "TFDEPLOY_TASK_HOST",
    "TFDEPLOY_TASK_ATTEMPT",
)


def ending_in_words(
    outcome: str, exit_code: object = None, signal: object = None, reason: Optional[str] = None
) -> str:
    """Return the text that follows the name of a task that died: "failed with exit code 3", "killed
    by signal 9", "gave up: REASON"."""
    if outcome == "succeeded":
        text = "ended too early, with exit code 0"
    elif outcome == "failed" and exit_code is not None:
        text = "failed with exit code %s" % exit_code
    elif outcome == "killed" and signal is not None and not reason:
        text = "killed by signal %s" % signal
    else:
        text = outcome.replace("_", " ")
    return "%s: %s" % (text, reason) if reason else text


def ending_in_short(
    outcome: Optional[str],
    exit_code: object = None,
    signal: object = None,
    reason: Optional[str] = None,
) -> str:
    """Return how an attempt ended, without a verb: REASON, or "exit code 3", "killed by signal 9",
    "lost". `outcome` None: unknown."""
    if reason:
        return reason
    if outcome in (None, "succeeded", "failed") and exit_code is not None:
        return "exit code %s" % exit_code
    if outcome in (None, "killed") and signal is not None:
        return "killed by signal %s" % signal
    return (outcome or "lost").replace("_", " ")


# --- values


def to_wire(value: Any) -> Any:
    """Return a record as a dict of its fields, ready for JSON. The result is a deep copy."""
    if hasattr(value, "FIELDS"):
        value = vars(value)
    if isinstance(value, dict):
        return {name: to_wire(item) for name, item in value.items()}
    return [to_wire(item) for item in value] if isinstance(value, (list, tuple)) else value


def from_wire(cls: Type[V], fields: Unchecked) -> V:
    """Return the record with these fields, as `to_wire` wrote them. Fields that this version does
    not know are left out."""
    known: Dict[str, Unchecked] = cls.FIELDS  # type: ignore[attr-defined]
    kept: Unchecked = {}
    for name in known.keys() & fields.keys():
        record_class, given = known[name].get("of"), fields[name]
        kept[name] = (
            given
            if record_class is None or given is None
            else [from_wire(record_class, item) for item in given]
        )
    return cls(**kept)


NAME_KEY_BYTES = 8


def name_key(path: str) -> bytes:
    """Return a hash of NAME_KEY_BYTES bytes for a file's path, to compare many paths."""
    import hashlib

    return hashlib.blake2b(os.fsencode(path), digest_size=NAME_KEY_BYTES).digest()


def word_of(word: PlanWord, texts: List[str]) -> str:
    """Return a word of a plan as text. `word`: text, or a list of texts and of indices in `texts`,
    which are joined. Raises ValueError."""
    if isinstance(word, str):
        return word
    try:
        return "".join(
            [part if isinstance(part, str) else texts[part] for part in list.__iter__(word)]
        )
    except (TypeError, IndexError) as error:
        raise ValueError("no word of a plan: %.100r" % (word,)) from error


@record
class TaskSpec:
    """Everything that a supervisor must know about its task, except secrets (env.json)."""

    task: str  # "worker:0"
    role: str
    index: int
    # Words for word_of. argv[0] is the interpreter or program, with ~ already expanded, or a name
    # that is looked up on PATH.
    argv: List[PlanWord]
    # Added to the environment of the agent. `path_prepend` below comes first on PATH.
    env: Dict[str, PlanWord]
    # The planned port. The task is up once its own process tree listens there. None: it does not
    # listen.
    port: Optional[int] = None
    gpus: List[int] = field(default_factory=list)
    deciding: bool = False
    ready_after_s: float = 5.0
    ready_timeout_s: float = 120.0
    log_max_bytes: int = 1 << 30
    path_prepend: List[str] = field(default_factory=list)
    serves: bool = False  # a server, as in Peer
    # A port that the program binds exclusively. The minder holds it until just before each start.
    own_port: Optional[int] = None
    runtime: bool = True  # tfdeploy's runtime is on its PYTHONPATH
    cwd: str = ""  # the folder inside the code in which the task starts; "": the top folder
    # Traits of the mode, for the runtime. None: from an older version, see runtime/task.py.
    traits: Optional[List[str]] = None


def whole_words(spec: TaskSpec, texts: List[str]) -> TaskSpec:
    """Return the spec with argv and env as text, as the task receives them. Raises ValueError."""
    argv = [word_of(word, texts) for word in spec.argv]
    return replace(
        spec, argv=argv, env={name: word_of(word, texts) for name, word in spec.env.items()}
    )


@record
class Peer:
    """A task of the run on any host, as every minder knows it."""

    task: str
    role: str
    host: str
    deciding: bool = False
    # A server, which never ends by itself. It is ended when all other tasks are done. An exit of
    # its own, also with code 0, is a failure.
    serves: bool = False
    # "alone": only this task is restarted; "gang": the whole gang is restarted; "": the run fails
    on_death: str = ""
    gang: bool = False  # belongs to the gang
    address: str = ""  # its address for other hosts, with the port; "": it does not listen
    own_port: bool = False  # the port is TaskSpec.own_port, and never probed once the task runs


@record
class MeshHost:
    host: str
    address: str
    port: int
    # All addresses of this host, without ports. [] in runs of an older version.
    addresses: List[str] = field(default_factory=list)


@record
class HostPart:
    """The part of a plan that one host carries out. Written to part.json, without secrets."""

    run: str
    job: str
    mode: str
    host: str
    plan_digest: str
    release: str
    tasks: List[TaskSpec] = field(default_factory=list, metadata={"of": TaskSpec})
    peers: List[Peer] = field(default_factory=list, metadata={"of": Peer})  # all tasks of the run
    # all hosts of the run
    mesh: List[MeshHost] = field(default_factory=list, metadata={"of": MeshHost})
    keep: List[str] = field(default_factory=list)  # paths relative to the code
    fresh: bool = False  # the content of `keep` is set aside first
    links: Dict[str, str] = field(default_factory=dict)  # path in the code -> data set's name
    # data set with `split` -> the number of its parts, then the parts of this host's tasks
    parts: Dict[str, List[int]] = field(default_factory=dict)
    finish_grace_s: float = 60.0
    stop_grace_s: float = 20.0
    start_within_s: float = 60.0  # a prepared run that is not started by then is aborted
    commit_within_s: float = 60.0  # a started run that is not committed by then is aborted
    # most restarts of a task or of the gang without ten good minutes in between
    restart_max: int = 0
    # the first and the longest pause before a restart
    restart_backoff_s: List[float] = field(default_factory=lambda: [1.0, 60.0])
    # A task without activity for this time is stalled. 0: stalls are not detected.
    stall_after_s: float = 0.0
    # "report", or "restart": the task that causes the stall is also ended, as if it had failed
    stall_action: str = "report"
    # How far this host's clock is ahead of the others, as the launch measured it. 0 if the measured
    # difference may be an error.
    ahead_s: float = 0.0
    # The host whose keep folders all hosts of the gang receive before the gang restarts.
    supply_from: Optional[str] = None
    # A host that has refused connections to the mesh's port for this time has no minder.
    unminded_after_s: float = 60.0
    # Tasks of a host without a minder are lost for good after this time.
    restart_wait_s: float = 3600.0
    # a task that fails twice with the same error before its first step does not start again
    same_error_ends: bool = False
    # strings that many words of the tasks share: see word_of
    texts: List[str] = field(default_factory=list)
    lockstep: bool = False  # each step waits for the slowest task
    # "none", "peers" or "firewall": how the run's ports on this host are protected from strangers
    protect: str = "none"
    # if they are protected: all IP addresses of all hosts of the run
    allowed: List[str] = field(default_factory=list)
    # The hosts that reject strangers. None in runs of an older version: all hosts or none.
    guarded: Optional[List[str]] = None
    # regular expressions with one group, for what tasks print
    metrics: Dict[str, str] = field(default_factory=dict)
    sample_every_s: float = 10.0  # 0: no samples are taken
    version: int = VERSION


@record
class TaskStatus:
    """status.json of one task, written by its supervisor, atomically; times are UTC seconds."""

    run: str
    task: str
    host: str
    attempt: int = 0
    state: str = "pending"  # TASK_STATES
    up: bool = False
    outcome: Optional[str] = None  # OUTCOMES, once state is ended or lost
    exit_code: Optional[int] = None
    signal: Optional[int] = None
    reason: Optional[str] = None  # "killed, out of memory", "stopped: the deciding task succeeded"
    pid: Optional[int] = None
    # field 22 of /proc/PID/stat; identifies the process together with pid and boot_id
    start_ticks: Optional[int] = None
    boot_id: Optional[str] = None
    started: Optional[float] = None
    ended: Optional[float] = None
    log_bytes: int = 0  # written so far (end offset)
    log_lost_bytes: int = 0  # dropped because the disk was full
    supervisor_pid: Optional[int] = None
    # "stalled". The reader of a status sets it from HostRunState.health.
    health: Optional[str] = None
    health_reason: Optional[str] = None
    health_since: Optional[float] = None
    round: int = 1  # how often the gang had started when this attempt started
    # Why the task has restarted, in words. The reader of a status sets it.
    began_again: Optional[str] = None
    lived_s: Optional[float] = None  # lifetime of an ended attempt, by the monotonic clock
    # The exception and its line, if an exception ended the attempt before its first step. See
    # log/failure_reason.py.
    error: str = ""
    # inode of the socket that closes the task's port to strangers; the task's processes inherit it
    guard_inode: Optional[int] = None
    version: int = VERSION


@record
class HostRunState:
    """state.json of one run on one host, written by its minder, atomically."""

    run: str
    job: str
    host: str
    phase: str = "prepared"  # PHASES
    started: Optional[float] = None
    ended: Optional[float] = None
    stop_requested: bool = False  # an operator asked for it
    abort_reason: Optional[str] = None
    first_death: Optional[Death] = None  # the death that made the run fail
    # tasks of all hosts, as far as this host knows
    ended_tasks: Dict[str, Ending] = field(default_factory=dict)
    minder_pid: Optional[int] = None
    minder_start_ticks: Optional[int] = None
    boot_id: Optional[str] = None
    # files in cwd/, outside keep, that the program has left at the end
    left_files: List[str] = field(default_factory=list)
    # the machine's own name, which distinguishes hosts that share a workdir
    hostname: Optional[str] = None
    # id of this boot of this machine or container, which distinguishes clones: run/find.py
    place: Optional[str] = None
    # event (prepared, started, decided, ...) -> its time in monotonic seconds of that boot
    marks: Dict[str, float] = field(default_factory=dict)
    health: Dict[str, Health] = field(default_factory=dict)  # of stalled tasks
    # of tasks whose starts failed recently
    restarts: Dict[str, RestartCount] = field(default_factory=dict)
    round: Optional[GangRound] = None  # the gang's latest restart
    # task that is about to restart -> why, in words
    again: Dict[str, str] = field(default_factory=dict)
    supplied: int = 1  # the gang's round for which the chief's keep folders have arrived
    # task -> why its port is open although the run is protected, in words
    open_ports: Dict[str, str] = field(default_factory=dict)
    # written by older versions in place of `admitted`, without hosts
    learned: List[str] = field(default_factory=list)
    # address that was admitted during the run -> its host
    admitted: Dict[str, str] = field(default_factory=dict)
    # host -> the address through which it connects, which is not its own
    not_admitted: Dict[str, str] = field(default_factory=dict)
    # hosts without a minder of the run -> since (UTC seconds)
    unminded: Dict[str, float] = field(default_factory=dict)
    version: int = VERSION
