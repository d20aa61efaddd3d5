"""Define the records that the control machine and the hosts exchange as values of verbs and as
status files. VERSION is the common version of these records. On a host, the minder is the process
that manages a run, and a supervisor is the parent process of a task.

A record is sent as a JSON object with its fields. A reader ignores fields that it does not know, so
the agent and tfdeploy understand each other even if one of them is older.
"""

from __future__ import annotations

import os

from tfdeploy.agent.annotations import TYPE_CHECKING, Any, Dict, List, Optional, Type, V
from tfdeploy.agent.record import field, record
from tfdeploy.agent.record import replace as replace  # other modules use it as wire.replace

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

# --- names of states, phases and environment variables

RUN_STATES = ("starting", "running", "succeeded", "failed", "stopped", "lost")
TASK_STATES = ("pending", "starting", "running", "ended", "lost")
OVER = ("ended", "lost")  # the states of an attempt that has ended
OUTCOMES = ("succeeded", "failed", "killed", "stopped", "gave_up", "lost")
DEATHS = ("failed", "killed", "gave_up", "lost")  # the outcomes that count as a death
# The phases of a run on one host, in this order. In the phase `ended`, no process of the run is
# alive on the host.
PHASES = ("prepared", "started", "committed", "ending", "ended")

# The longest JSON text of shared_state.KnownRunState. It has room for a thousand tasks with long
# reasons in any language.
MAX_KNOWN_BYTES = 1 << 22

# The environment variable that contains the id of the run. Every process of a task has it.
MARKER = "TFDEPLOY_TASK_RUN_ID"
# Environment variables that every task has. supervise/spawn.py sets them.
TASK_MARKERS = (
    MARKER,
    "TFDEPLOY_TASK_JOB",
    "TFDEPLOY_TASK_ROLE",
    "TFDEPLOY_TASK_INDEX",
    "TFDEPLOY_TASK_HOST",
    "TFDEPLOY_TASK_ATTEMPT",
)


def describe_task_death(
    outcome: str, exit_code: object, signal: object, reason: Optional[str]
) -> str:
    """Return how a task died, as a text that may follow the name of the task: "failed with exit
    code 3", "killed by signal 9", "gave up: REASON"."""
    if outcome == "succeeded":
        text = "ended too early, with exit code 0"
    elif outcome == "failed" and exit_code is not None:
        text = "failed with exit code %s" % exit_code
    elif outcome == "killed" and signal is not None and not reason:
        text = "killed by signal %s" % signal
    else:
        text = outcome.replace("_", " ")
    return "%s: %s" % (text, reason) if reason else text


def summarize_ending(
    outcome: Optional[str],
    exit_code: object,
    signal: object,
    reason: Optional[str] = None,
) -> str:
    """Return how an attempt ended, as a short text: the reason if there is one, otherwise "exit
    code 3", "killed by signal 9" or "lost". `outcome` is None if it is unknown."""
    if reason:
        return reason
    if outcome in (None, "succeeded", "failed") and exit_code is not None:
        return "exit code %s" % exit_code
    if outcome in (None, "killed") and signal is not None:
        return "killed by signal %s" % signal
    return (outcome or "lost").replace("_", " ")


# --- conversion of records


def to_wire(value: Any) -> Any:
    """Return a dict with the fields of a record, ready for JSON. It is a deep copy."""
    if hasattr(value, "FIELDS"):
        value = vars(value)
    if isinstance(value, dict):
        return {name: to_wire(item) for name, item in value.items()}
    return [to_wire(item) for item in value] if isinstance(value, (list, tuple)) else value


def from_wire(cls: Type[V], fields: Unchecked) -> V:
    """Return a record with these fields, which `to_wire` has written. Fields that this version does
    not know are left out."""
    known: Dict[str, Unchecked] = cls.FIELDS  # type: ignore[attr-defined]
    values: Unchecked = {}
    for name in known.keys() & fields.keys():
        record_class, value = known[name].get("of"), fields[name]
        values[name] = (
            value
            if record_class is None or value is None
            else [from_wire(record_class, item) for item in value]
        )
    return cls(**values)


NAME_KEY_BYTES = 8


def hash_path(path: str) -> bytes:
    """Return a short hash of a path (NAME_KEY_BYTES bytes), to compare many paths."""
    import hashlib

    return hashlib.blake2b(os.fsencode(path), digest_size=NAME_KEY_BYTES).digest()


def resolve_word(word: PlanWord, texts: List[str]) -> str:
    """Return the text of a word in a command or environment of a plan. `word` is a text, or a list
    of texts and numbers, which are joined. A number stands for the text with this index in `texts`.
    Raises ValueError."""
    if isinstance(word, str):
        return word
    try:
        return "".join(
            [part if isinstance(part, str) else texts[part] for part in list.__iter__(word)]
        )
    except (TypeError, IndexError) as error:
        raise ValueError("not a valid argument or variable of a plan: %.100r" % (word,)) from error


@record
class TaskSpec:
    """Everything that a supervisor must know about its task, except secrets, which are in
    env.json."""

    task: str  # "worker:0"
    role: str
    index: int
    # The command and its arguments; resolve_word turns them into texts. The first is the program: a
    # path in which ~ is already replaced, or a name that is searched on PATH.
    argv: List[PlanWord]
    # Variables that the task gets in addition to those of the agent. The folders in `path_prepend`
    # below are put at the beginning of PATH.
    env: Dict[str, PlanWord]
    # The port that the plan gives to the task, or None if the task does not listen. The task is up
    # once one of its processes listens on this port.
    port: Optional[int] = None
    gpus: List[int] = field(default_factory=list)
    deciding: bool = False
    ready_after_s: float = 5.0
    ready_timeout_s: float = 120.0
    log_max_bytes: int = 1 << 30
    path_prepend: List[str] = field(default_factory=list)
    serves: bool = False  # True if the task is a server; see Peer, which has the same field
    # The task's port if the program binds it exclusively, otherwise None. While the task is not
    # alive, the minder holds this port, and releases it just before the task starts.
    own_port: Optional[int] = None
    runtime: bool = True  # True if tfdeploy's runtime is put on the PYTHONPATH of the task
    cwd: str = ""  # the folder inside the code in which the task starts; "" means the top folder
    # Traits of the mode of training, which tfdeploy's runtime reads, see runtime/task.py. None if
    # an older version made the plan.
    traits: Optional[List[str]] = None


def resolve_words(spec: TaskSpec, texts: List[str]) -> TaskSpec:
    """Resolve all words of argv and env, and return the spec with the texts that the task receives.
    Raises ValueError."""
    argv = [resolve_word(word, texts) for word in spec.argv]
    return replace(
        spec, argv=argv, env={name: resolve_word(word, texts) for name, word in spec.env.items()}
    )


@record
class Peer:
    """One task of the run, on any host. Every minder knows all tasks of the run."""

    task: str
    role: str
    host: str
    deciding: bool = False
    # True for a server, which never ends by itself. It is ended after all other tasks have ended.
    # If it exits by itself, even with code 0, this is a failure.
    serves: bool = False
    # What happens if the task dies: "alone" (only this task restarts), "gang" (all tasks of the
    # gang restart) or "" (the run fails).
    on_death: str = ""
    gang: bool = False  # True if the task belongs to the gang, the tasks that restart together
    # the task's address for other hosts, with the port; "" if the task does not listen
    address: str = ""
    # True if the port is TaskSpec.own_port. While the task runs, such a port is not tested by a
    # connection.
    own_port: bool = False


@record
class MeshHost:
    host: str
    address: str
    port: int
    # All addresses of this host, without ports. Empty if an older version launched the run.
    addresses: List[str] = field(default_factory=list)


@record
class HostPart:
    """The part of a plan that one host carries out. It is written to part.json; secrets are left
    out."""

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
    keep: List[str] = field(default_factory=list)  # `keep` folders, as paths relative to the code
    # True if the content of the `keep` folders must be set aside before the run starts.
    fresh: bool = False
    # Path relative to the code -> name of the data set to which it is linked.
    links: Dict[str, str] = field(default_factory=dict)
    # data set with `split` -> [the number of its parts, then the parts of this host's tasks]
    parts: Dict[str, List[int]] = field(default_factory=dict)
    finish_grace_s: float = 60.0
    stop_grace_s: float = 20.0
    # A prepared run is aborted if it is not started within this time.
    start_within_s: float = 60.0
    # A started run is aborted if it is not committed within this time.
    commit_within_s: float = 60.0
    # How many restarts of a task or of the gang are allowed. After an attempt that lived for ten
    # minutes, the count begins again at zero.
    restart_max: int = 0
    # the first and the longest pause before a restart, in seconds
    restart_backoff_s: List[float] = field(default_factory=lambda: [1.0, 60.0])
    # A task that shows no activity for this time is stalled. If 0, stalls are not detected.
    stall_after_s: float = 0.0
    # What to do about a stall. "report": only report it. "restart": also end the task that causes
    # it, as if it had failed.
    stall_action: str = "report"
    # How many seconds this host's clock is ahead of the clocks of the other hosts. The launch
    # measures this. 0 if the measured difference is so small that it may be an error.
    ahead_s: float = 0.0
    # The host whose `keep` folders are copied to all hosts of the gang before the gang restarts. If
    # None, no `keep` folders are copied.
    supply_from: Optional[str] = None
    # A host that refuses connections to the mesh's port for this time counts as a host without a
    # minder.
    unminded_after_s: float = 60.0
    # If a host has no minder for this time, its tasks are lost and do not come back.
    restart_wait_s: float = 3600.0
    # if True, a task that fails twice with the same error before its first step does not restart
    same_error_ends: bool = False
    # Texts that occur in several words of the tasks' commands and environments. Each of these texts
    # is written here once, see resolve_word.
    texts: List[str] = field(default_factory=list)
    lockstep: bool = False  # True if each step of the training waits for the slowest task
    # How the run's ports on this host are protected from connections that do not come from the
    # run's hosts: "none", "peers" or "firewall".
    protect: str = "none"
    # All IP addresses of all hosts of the run. [] if the ports are not protected.
    allowed: List[str] = field(default_factory=list)
    # The hosts that protect their ports. None if an older version launched the run; then `protect`
    # says whether all hosts or none protect their ports.
    guarded: Optional[List[str]] = None
    # metric -> regular expression with one group, for the output of tasks
    metrics: Dict[str, str] = field(default_factory=dict)
    sample_every_s: float = 10.0  # seconds between two samples; if 0, no samples are taken
    version: int = VERSION


@record
class TaskStatus:
    """The file status.json of one task. Its supervisor writes it atomically. Times are UTC
    seconds."""

    run: str
    task: str
    host: str
    attempt: int = 0
    state: str = "pending"  # one of TASK_STATES
    up: bool = False
    outcome: Optional[str] = None  # one of OUTCOMES; None until state is "ended" or "lost"
    exit_code: Optional[int] = None
    signal: Optional[int] = None
    # such as "killed, out of memory" or "stopped: the deciding task succeeded"
    reason: Optional[str] = None
    pid: Optional[int] = None
    # Field 22 of /proc/PID/stat. Together with pid and boot_id it identifies the process.
    start_ticks: Optional[int] = None
    boot_id: Optional[str] = None
    started: Optional[float] = None
    ended: Optional[float] = None
    log_bytes: int = 0  # how many bytes of output have been written to the log so far
    log_lost_bytes: int = 0  # how many bytes of output were dropped because the disk was full
    supervisor_pid: Optional[int] = None
    # "stalled" or None. The process that reads a status sets this field from HostRunState.health.
    health: Optional[str] = None
    health_reason: Optional[str] = None
    health_since: Optional[float] = None
    # The number of the gang's latest start when this attempt began; the first start has the number
    # 1. The gang is the tasks that restart together.
    round: int = 1
    # Why the task has restarted, in words. The process that reads a status sets this field.
    began_again: Optional[str] = None
    # How many seconds an ended attempt lived, by the monotonic clock.
    lived_s: Optional[float] = None
    # The exception that ended the attempt before its first step, and the line that raised it. "" if
    # there was no such exception. See log/failure_reason.py.
    error: str = ""
    # Inode of the agent's socket that keeps the task's port closed to strangers. The task's
    # processes inherit this socket.
    guard_inode: Optional[int] = None
    version: int = VERSION


@record
class HostRunState:
    """The file state.json of one run on one host. Its minder writes it atomically."""

    run: str
    job: str
    host: str
    phase: str = "prepared"  # one of PHASES
    started: Optional[float] = None
    ended: Optional[float] = None
    stop_requested: bool = False  # True if an operator has asked to stop the run
    abort_reason: Optional[str] = None
    first_death: Optional[Death] = None  # the task death that has made the run fail
    # task -> how it ended, for tasks of all hosts, as far as this host knows
    ended_tasks: Dict[str, Ending] = field(default_factory=dict)
    minder_pid: Optional[int] = None
    minder_start_ticks: Optional[int] = None
    boot_id: Optional[str] = None
    # Files that the program left in its working directory cwd/ when it ended. Files in `keep`
    # folders do not count.
    left_files: List[str] = field(default_factory=list)
    # The machine's own name. It distinguishes hosts that share a workdir.
    hostname: Optional[str] = None
    # An id of this boot of this machine or container. It distinguishes clones of a machine, see
    # run/find.py.
    place: Optional[str] = None
    # event, such as prepared, started or decided -> when it happened, in monotonic seconds since
    # the boot `boot_id`
    marks: Dict[str, float] = field(default_factory=dict)
    health: Dict[str, Health] = field(default_factory=dict)  # stalled task -> what is wrong
    # task -> how many of its starts have failed, for tasks whose starts failed recently
    restarts: Dict[str, RestartCount] = field(default_factory=dict)
    round: Optional[GangRound] = None  # the last restart of the gang
    # task that will restart soon -> why, in words
    again: Dict[str, str] = field(default_factory=dict)
    # The number of the last start of the gang for which this host has the `keep` folders of the
    # host HostPart.supply_from.
    supplied: int = 1
    # task -> why its port is open to everybody although the run's ports are protected
    open_ports: Dict[str, str] = field(default_factory=dict)
    # Older versions write this list of addresses instead of `admitted`. The list does not say which
    # host stated which address as its own.
    learned: List[str] = field(default_factory=list)
    # for each address that was admitted during the run: the host that stated it as its own
    admitted: Dict[str, str] = field(default_factory=dict)
    # host -> an address from which this host has connected without having stated it as its own
    not_admitted: Dict[str, str] = field(default_factory=dict)
    # host that has no minder of the run -> since when, in UTC seconds
    unminded: Dict[str, float] = field(default_factory=dict)
    version: int = VERSION
