"""Define what a host reports about itself in a probe (the facts), and what hosts report for
`tfdeploy check` about the links between them. Planning decides from these values alone and does not
ask the hosts again.

A hostile host may send anything, so each fact is checked or limited in size when it is received.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import chain, filterfalse
from typing import Annotated, Literal

from msgspec import Meta

from tfdeploy.model.job import Level
from tfdeploy.text.allowed import is_ip
from tfdeploy.text.typed import (
    AbsolutePath,
    Account,
    Answer,
    BigCount,
    Count,
    EmptyAnswer,
    Line,
    Name,
    Port,
    Seconds,
    StreamingVerb,
    Text,
    Variable,
    Verb,
    Version,
)

Small = Annotated[int, Meta(ge=0, le=1 << 20)]
Texts = Annotated[tuple[Text, ...], Meta(max_length=1000)]
Resolved = Annotated[tuple[Line, ...], Meta(max_length=16)]
Modules = Annotated[dict[Variable, bool], Meta(max_length=1000)]
Variables = Annotated[tuple[Variable, ...], Meta(max_length=100)]


@dataclass(frozen=True)
class Gpu:
    index: Small
    name: Line
    memory_mib: Count
    used_mib: Count
    uuid: Line = ""


@dataclass(frozen=True)
class KeepFolderFact:
    """The newest content of one of the folders that the job keeps (`keep:`). Times are UTC seconds
    by the host's clock."""

    path: Text  # the folder's path, as in the job file
    newest: Seconds  # when the newest file of the folder was changed
    # name of the newest checkpoint, such as "model.ckpt-1200", from TensorFlow's file `checkpoint`
    checkpoint: Text | None = None
    step: BigCount | None = None
    recorded: Seconds | None = None  # when the `checkpoint` file was written; None: there is none
    files: Count = 0
    bytes: Count = 0

    @property
    def compared_time(self) -> float:
        """Return the time by which `keep` folders are compared. If the folder has a checkpoint,
        this is the checkpoint's time, so that newer log files do not count. Otherwise it is the
        newest file's time."""
        return self.newest if self.recorded is None else self.recorded

    def may_be_copy_of(self, other: KeepFolderFact) -> bool:
        """True if `self` and `other` may describe the same folder or copies of it."""
        return (self.path, self.compared_time, self.checkpoint) == (
            other.path,
            other.compared_time,
            other.checkpoint,
        )


@dataclass(frozen=True)
class LiveRun:
    """A run of this job that is alive on this host."""

    run: Name
    who: Text  # user@machine
    started: Seconds | None = None


_UNSAID = "the host's agent is too old to report this"


@dataclass(frozen=True)
class ProtectionHindrances:
    """Why the host cannot provide a level of `protect`. `peers`, `firewall`: the reason for the
    level of this name; "" if the host can provide the level. `most_instructions`: the most
    instructions that the host's kernel allows in a socket's filter."""

    peers: Text = _UNSAID
    firewall: Text = _UNSAID
    most_instructions: Count = 0

    def hindrance_to(self, level: Level) -> str:
        return {"peers": self.peers, "firewall": self.firewall}.get(level, "")


@dataclass(frozen=True)
class FolderSpace:
    """A system folder in which programs write."""

    path: AbsolutePath
    writable: bool
    free_bytes: BigCount


@dataclass(frozen=True)
class WorkdirMount:
    """The file system that holds the workdir."""

    source: Line
    point: Line
    type: Line
    options: Annotated[tuple[Line, ...], Meta(max_length=100)]


@dataclass(frozen=True)
class Quota:
    """What the user may still store on the workdir's file system. None: no limit."""

    left_bytes: BigCount | None
    left_files: BigCount | None
    over: bool


@dataclass(frozen=True)
class LogoutPolicy:
    """What logind does when the last session of the user ends."""

    kills: bool
    removes_ipc: bool


@dataclass(frozen=True)
class PreflightFacts:
    """The facts that are collected only for a preflight."""

    # {name of a limit: its soft value}, for limits that are set
    limits: Annotated[dict[Line, BigCount], Meta(max_length=100)]
    available_bytes: BigCount | None  # memory that is available
    shared_memory: FolderSpace | None  # /dev/shm
    temporary: FolderSpace | None
    mount: WorkdirMount | None  # the file system of the workdir
    workdir_mode: Small | None
    quota: Quota | None
    driver: Version | None  # version of the NVIDIA driver
    nvidia_devices: Small  # how many NVIDIA GPUs are on the PCI bus, with or without a driver
    logout: LogoutPolicy
    # How many ports of the inventory's range the kernel may give to any outgoing connection.
    ephemeral_ports: Small


@dataclass(frozen=True)
class HostFacts:
    """The facts about one host at the time of the probe. Sizes in bytes, times in UTC seconds,
    paths absolute."""

    hostname: Line
    user: Account
    home: Line
    workdir: AbsolutePath
    # absolute path of the interpreter for the training program; None: not found
    python: AbsolutePath | None
    python_version: Version | None
    cores: Small
    free_disk_bytes: BigCount
    free_inodes: BigCount
    boot_id: Line
    clock: Seconds  # the host's UTC seconds at the probe
    host: Line = ""  # the host's name in the inventory; set on this machine, not sent by the host
    # the host's clock minus this machine's clock, measured by the session; not sent by the host
    clock_skew_s: Seconds = 0.0
    ssh_server_address: Line | None = None  # the server's IP address in SSH_CONNECTION
    # names of the cluster that resolve to a loopback address on this host
    hosts_file_loopback: Texts = ()
    # {cluster name: IP addresses to which this host resolves it}
    resolved: Annotated[dict[Line, Resolved], Meta(max_length=10_000)] = field(default_factory=dict)
    # free ports of the inventory's range, in order
    free_ports: Annotated[tuple[Port, ...], Meta(max_length=65535)] = ()
    # {port in use: the process that uses it}, if known
    taken_ports: Annotated[dict[Line, Text], Meta(max_length=65535)] = field(default_factory=dict)
    gpus: Annotated[tuple[Gpu, ...], Meta(max_length=1024)] = ()
    gpu_error: Text | None = None
    # versions of installed packages, read without importing them
    tensorflow: Version | None = None
    tf_keras: Version | None = None
    keras: Version | None = None
    numpy: Version | None = None
    # {requested module: True if `import` can find it}
    modules: Modules = field(default_factory=dict)
    cpu_only: bool = False  # True if TensorFlow was built without GPU support
    rsync: Line | None = None  # version of rsync on the host; None: rsync is missing
    # path of the environment that `setup` made for this job. If there is one, the fields `python`
    # and the versions are those of this environment.
    environment: AbsolutePath | None = None
    proxies: Variables = ()  # names of proxy variables that are set on the host
    # names of variables that are set on the host and that the plan also sets for each task
    preset: Variables = ()
    keep: Annotated[tuple[KeepFolderFact, ...], Meta(max_length=1000)] = ()
    # when the task that writes checkpoints last succeeded on this host; None: never
    succeeded: Seconds | None = None
    # True if the task that writes checkpoints was on this host in the newest committed run that the
    # host knows. None: the host knows no committed run.
    wrote_last: bool | None = None
    live_runs: Annotated[tuple[LiveRun, ...], Meta(max_length=10_000)] = ()
    # True if lingering is enabled for the user in logind; None: the host has no logind
    linger: bool | None = None
    kill_user_processes: bool = False
    # IP addresses of all interfaces of the host, without loopback and link-local addresses
    addresses: Texts = ()
    protect: ProtectionHindrances = field(default_factory=ProtectionHindrances)
    # True if the probe looked for the program that the command's first word names, and the host
    # does not have it
    lacks_program: bool = False
    problems: Texts = ()  # what will not work on this host, as text
    preflight: PreflightFacts | None = None  # None: the probe was not for a preflight
    version: Line = ""  # the agent's version

    def refuse_unrequested_facts(
        self, port_range: tuple[int, int], cluster_names: Collection[str], modules: Collection[str]
    ) -> None:
        """Raise ValueError if the host sent facts that were not requested. The request named a
        range of ports (`port_range`), the names in the cluster (`cluster_names`), and Python
        modules (`modules`). Also raise ValueError for an address that is no IP address."""
        low, high = port_range
        addresses = chain(self.addresses, *self.resolved.values())
        for address in filterfalse(is_ip, addresses):
            raise ValueError(f"{address!r:.200} is no IP address")
        if self.ssh_server_address is not None and not is_ip(self.ssh_server_address):
            raise ValueError(f"{self.ssh_server_address!r:.200} is no IP address")
        if not all(low <= port <= high for port in self.free_ports):
            raise ValueError(f"free ports outside {low}-{high}")
        if not {*self.hosts_file_loopback, *self.resolved} <= {*cluster_names}:
            raise ValueError("names of the cluster were sent that were not requested")
        if not self.modules.keys() <= {*modules}:
            raise ValueError("Python modules were sent that were not requested")


FactsByHost = Mapping[str, HostFacts]
PROBE = Verb("probe", HostFacts)


Why = Literal[
    "refused",
    "silent",
    "no_route",
    "forbidden",
    "reset",
    "busy",
    "loopback",
    "unresolved",
    "other",
    "mute",
    "error",
]
Amount = Annotated[float, Meta(ge=0, le=1e9)]


class ListeningPorts(Answer):
    """`ports`: the ports on which the host listens. `taken`: {port: why the host does not listen on
    it}."""

    ports: Annotated[list[Port], Meta(max_length=64)]
    taken: Annotated[dict[Line, Line], Meta(max_length=64)]


class TriedLinks(Answer):
    """`asked`: how many links were tried. `failed`: [index of the link in the request, why, detail]
    of each link that does not work. The values of `why` are silent (no answer), forbidden (a
    firewall of this host forbids the link), busy (this host cannot open a further connection),
    loopback (the name resolves to this host itself), other (another token was received) and mute
    (no token was received)."""

    asked: Count
    failed: Annotated[list[tuple[Count, Why, Line]], Meta(max_length=20_000)]


class LinkMeasurement(Answer):
    """The numbers are null if the measurement failed; `why` then says why."""

    ms: Amount | None
    to_mbit_s: Amount | None
    from_mbit_s: Amount | None
    why: Text


CHECK_LISTEN = StreamingVerb("check.listen", ListeningPorts, EmptyAnswer)
CHECK_KNOCK = Verb("check.knock", TriedLinks)
CHECK_MEASURE = Verb("check.measure", LinkMeasurement)
