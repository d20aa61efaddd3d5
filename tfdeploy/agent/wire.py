"""What both sides speak: values of verbs, status files, journal records. Versioned, once.

The control side imports of the agent this module, `frames`, `layout` and `shapes`, and no other. A
value travels as the JSON of its fields. A reader leaves out fields that it does not know, so that
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
# of the run on one host, in order; `ended` means that nothing of it is alive there
PHASES = ("prepared", "started", "committed", "ending", "ended")

# of Knowledge as JSON: enough for a thousand tasks that ended with long reasons in any script
MAX_KNOWN_BYTES = 1 << 22

MARKER = "TFDEPLOY_TASK_RUN_ID"  # in the environment of every process of a task: run id
TASK_MARKERS = (  # what each task finds in its environment
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
    """The words behind the name of a task that died: "failed with exit code 3", "killed by signal
    9", "gave up: REASON"."""
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
    """How an attempt ended, without a verb: REASON, or "exit code 3", "killed by signal 9", "lost".
    `outcome` None: unknown."""
    if reason:
        return reason
    if outcome in (None, "succeeded", "failed") and exit_code is not None:
        return "exit code %s" % exit_code
    if outcome in (None, "killed") and signal is not None:
        return "killed by signal %s" % signal
    return (outcome or "lost").replace("_", " ")


# --- values


def to_wire(value: Any) -> Any:
    """One of the records below as a dict of its fields, ready for JSON; a deep copy."""
    if hasattr(value, "FIELDS"):
        value = vars(value)
    if isinstance(value, dict):
        return {name: to_wire(item) for name, item in value.items()}
    return [to_wire(item) for item in value] if isinstance(value, (list, tuple)) else value


def from_wire(cls: Type[V], fields: Unchecked) -> V:
    """The record again. Fields that this version does not know are left out."""
    known: Dict[str, Unchecked] = cls.FIELDS  # type: ignore[attr-defined]
    kept: Unchecked = {}
    for name in known.keys() & fields.keys():
        of, given = known[name].get("of"), fields[name]
        kept[name] = (
            given if of is None or given is None else [from_wire(of, item) for item in given]
        )
    return cls(**kept)


NAME_KEY_BYTES = 8


def name_key(path: str) -> bytes:
    """A short hash of a file's path, for comparing many. 8 bytes."""
    import hashlib

    return hashlib.blake2b(os.fsencode(path), digest_size=NAME_KEY_BYTES).digest()


def word_of(word: PlanWord, texts: List[str]) -> str:
    """A word of a plan: text, or a list of texts and of numbers, which name one of `texts`. Raises
    ValueError."""
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
    """All that a supervisor must know of its task, but for secrets (env.json)."""

    task: str  # "worker:0"
    role: str
    index: int
    # Words as of word_of. argv[0] is the interpreter or program, with ~ already expanded or looked
    # up on PATH
    argv: List[PlanWord]
    # set over the environment of the agent; PATH_PREPEND below goes first on PATH
    env: Dict[str, PlanWord]
    # the planned port; up = listened on by the task's own process tree. None: it does not listen
    port: Optional[int] = None
    gpus: List[int] = field(default_factory=list)
    deciding: bool = False
    ready_after_s: float = 5.0
    ready_timeout_s: float = 120.0
    log_max_bytes: int = 1 << 30
    path_prepend: List[str] = field(default_factory=list)
    serves: bool = False  # a server, as in Peer
    # its program binds it exclusively: the minder holds it until just before each start
    own_port: Optional[int] = None
    runtime: bool = True  # tfdeploy's is on its PYTHONPATH
    cwd: str = ""  # the folder inside the code in which it starts; "": its top
    # of the mode, for the runtime; None: of a version before, see runtime/task.py
    traits: Optional[List[str]] = None


def whole_words(spec: TaskSpec, texts: List[str]) -> TaskSpec:
    """With argv and env as the task gets them. Raises ValueError."""
    argv = [word_of(word, texts) for word in spec.argv]
    return replace(
        spec, argv=argv, env={name: word_of(word, texts) for name, word in spec.env.items()}
    )


@record
class Peer:
    """A task of the run on any host: what every minder knows of all tasks."""

    task: str
    role: str
    host: str
    deciding: bool = False
    # never ends by itself: it is ended when all other tasks are done, and its own exit 0 is a
    # failure
    serves: bool = False
    # "alone": it is started again by itself, "gang": the whole gang is, "": the run fails
    on_death: str = ""
    gang: bool = False  # belongs to the gang
    address: str = ""  # what the other hosts call it, with its port; "": it does not listen
    own_port: bool = False  # that port is its own_port: it is never probed once the task runs


@record
class MeshHost:
    host: str
    address: str
    port: int
    # all of this host, without ports; [] in runs of a version before
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
    fresh: bool = False  # what lies in `keep` is set aside first
    links: Dict[str, str] = field(default_factory=dict)  # path in the code -> data set's name
    # data set with `split` -> how many parts, then those of its tasks
    parts: Dict[str, List[int]] = field(default_factory=dict)
    finish_grace_s: float = 60.0
    stop_grace_s: float = 20.0
    start_within_s: float = 60.0  # prepared, no start
    commit_within_s: float = 60.0  # started, no commit
    # starts again, of a task or of the gang, without ten good minutes in between
    restart_max: int = 0
    # the first pause, and the longest
    restart_backoff_s: List[float] = field(default_factory=lambda: [1.0, 60.0])
    # a task that does nothing for so long is stalled; 0: stalls are not looked for
    stall_after_s: float = 0.0
    stall_action: str = "report"  # or "restart": the culprit is also ended, as if it had failed
    # this host's clock before the others', as the launch found it; 0 where that may be an error
    ahead_s: float = 0.0
    # the host whose keep lies on all the gang's disks before the gang starts again
    supply_from: Optional[str] = None
    # a host that has refused the mesh's port for so long has no minder
    unminded_after_s: float = 60.0
    # tasks of a host without a minder are lost for good after so long
    restart_wait_s: float = 3600.0
    # a task that fails twice with the same error before its first step does not start again
    same_error_ends: bool = False
    # strings that many words of the tasks share: see word_of
    texts: List[str] = field(default_factory=list)
    lockstep: bool = False  # each step waits for the slowest task
    protect: str = "none"  # or "peers", "firewall": who is let in at the run's ports of this host
    # then: all IP addresses of all hosts of the run
    allowed: List[str] = field(default_factory=list)
    # the hosts that turn strangers away; None in runs of a version before: all or none
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
    start_ticks: Optional[int] = None  # field 22 of /proc/PID/stat: with boot_id the pid's identity
    boot_id: Optional[str] = None
    started: Optional[float] = None
    ended: Optional[float] = None
    log_bytes: int = 0  # written so far (end offset)
    log_lost_bytes: int = 0  # dropped because the disk was full
    supervisor_pid: Optional[int] = None
    # "stalled": filled in from HostRunState.health where a status is read
    health: Optional[str] = None
    health_reason: Optional[str] = None
    health_since: Optional[float] = None
    round: int = 1  # how often the gang had started when this attempt did
    # why there is an attempt after the first, in words: filled in where a status is read
    began_again: Optional[str] = None
    lived_s: Optional[float] = None  # of an attempt that ended, by the monotonic clock
    # the exception and its line, where the attempt ended by one before its first step: see
    # log/failure_reason.py
    error: str = ""
    # of the socket that closes its port to strangers, which its processes have too
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
    first_death: Optional[Death] = None  # the cause
    ended_tasks: Dict[str, Ending] = field(default_factory=dict)  # as known here, all hosts
    minder_pid: Optional[int] = None
    minder_start_ticks: Optional[int] = None
    boot_id: Optional[str] = None
    left_files: List[str] = field(default_factory=list)  # written in cwd/, outside keep, at the end
    hostname: Optional[str] = None  # the machine's own name: tells hosts apart that share a workdir
    # this boot of this machine or container, which tells clones apart: run/find.py
    place: Optional[str] = None
    # monotonic seconds of that boot: prepared, started, decided, ...
    marks: Dict[str, float] = field(default_factory=dict)
    health: Dict[str, Health] = field(default_factory=dict)  # of tasks that stand still
    # of tasks whose starts failed lately
    restarts: Dict[str, RestartCount] = field(default_factory=dict)
    round: Optional[GangRound] = None  # the gang's latest new start
    # task that is about to start again -> why, in words
    again: Dict[str, str] = field(default_factory=dict)
    supplied: int = 1  # the gang's round for which the chief's keep has come
    # task -> in words, why its port is open though it is protected
    open_ports: Dict[str, str] = field(default_factory=dict)
    # what a version before wrote for `admitted`, without hosts
    learned: List[str] = field(default_factory=list)
    # address of a host that was let in later -> that host
    admitted: Dict[str, str] = field(default_factory=dict)
    # host -> the address it came through, which is not its own
    not_admitted: Dict[str, str] = field(default_factory=dict)
    # hosts without a minder of the run -> since (UTC seconds)
    unminded: Dict[str, float] = field(default_factory=dict)
    version: int = VERSION
