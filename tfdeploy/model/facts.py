"""Define what a probe finds on a host. Planning uses these facts and never asks the host again.

A host sends them, so each is parsed or bounded when it is received.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Annotated

from msgspec import Meta

from tfdeploy.model.allowed import is_ip
from tfdeploy.model.answers.bounds import (
    AbsolutePath,
    Account,
    BigCount,
    Count,
    Line,
    Name,
    Port,
    Seconds,
    Text,
    Variable,
    Version,
)
from tfdeploy.model.answers.verb import Verb
from tfdeploy.model.protect import Level

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
class KeepFact:
    """The newest thing in one keep folder of this job: mtime is UTC seconds by the host's clock."""

    path: Text  # as in the job file
    newest: Seconds
    checkpoint: Text | None = None  # "model.ckpt-1200", from TensorFlow's own `checkpoint` file
    step: BigCount | None = None
    recorded: Seconds | None = None  # when that `checkpoint` file was written, as `newest`
    files: Count = 0
    bytes: Count = 0

    @property
    def time(self) -> float:
        """Return the time by which `keep` folders are compared: the checkpoint's if there is one,
        so that newer log files do not count."""
        return self.newest if self.recorded is None else self.recorded

    def same_as(self, other: KeepFact) -> bool:
        """True if both may be one folder, or copies of it."""
        return (self.path, self.time, self.checkpoint) == (other.path, other.time, other.checkpoint)


@dataclass(frozen=True)
class LiveRun:
    """A run of this job that is alive on this host."""

    run: Name
    who: Text  # user@machine
    started: Seconds | None = None


_UNSAID = "its agent does not say"


@dataclass(frozen=True)
class Hindrances:
    """Why a host cannot do each level of `protect`; "": it can. `most_instructions`: of a filter of
    its kernel."""

    peers: Text = _UNSAID
    firewall: Text = _UNSAID
    most_instructions: Count = 0

    def hindrance(self, level: Level) -> str:
        return {"peers": self.peers, "firewall": self.firewall}.get(level, "")


@dataclass(frozen=True)
class FolderSpace:
    """A folder of the system in which programs write."""

    path: AbsolutePath
    writable: bool
    free_bytes: BigCount


@dataclass(frozen=True)
class Mount:
    """The file system that holds the workdir."""

    source: Line
    point: Line
    type: Line
    options: Annotated[tuple[Line, ...], Meta(max_length=100)]


@dataclass(frozen=True)
class Quota:
    """What the user may still have on the workdir's file system; None: without a limit."""

    left_bytes: BigCount | None
    left_files: BigCount | None
    over: bool


@dataclass(frozen=True)
class Logout:
    """What logind does when the last session of the user ends."""

    kills: bool
    removes_ipc: bool


@dataclass(frozen=True)
class Preflight:
    """The facts that only a preflight asks for."""

    # name -> soft limit, of those that are set
    limits: Annotated[dict[Line, BigCount], Meta(max_length=100)]
    available_bytes: BigCount | None  # of memory
    shared_memory: FolderSpace | None  # /dev/shm
    temporary: FolderSpace | None
    mount: Mount | None  # of the workdir
    workdir_mode: Small | None
    quota: Quota | None
    driver: Version | None  # of NVIDIA's GPUs
    nvidia_devices: Small  # on the bus
    logout: Logout
    ephemeral_ports: Small  # of the range, which the kernel may give to any connection


@dataclass(frozen=True)
class HostFacts:
    """One host at one moment. Bytes and UTC seconds; paths absolute."""

    hostname: Line
    user: Account
    home: Line
    workdir: AbsolutePath
    # the interpreter of the training program, absolute; None: not found
    python: AbsolutePath | None
    python_version: Version | None
    cores: Small
    free_disk_bytes: BigCount
    free_inodes: BigCount
    boot_id: Line
    clock: Seconds  # host's UTC seconds when asked
    host: Line = ""  # its name in the inventory; not sent by the host
    # host minus control machine, measured by the session; not sent by the host
    clock_skew_s: Seconds = 0.0
    ssh_server_address: Line | None = None  # the server's side of SSH_CONNECTION: an IP address
    hosts_file_loopback: Texts = ()  # cluster names that resolve to loopback here
    # name -> IP addresses here
    resolved: Annotated[dict[Line, Resolved], Meta(max_length=10_000)] = field(default_factory=dict)
    free_ports: Annotated[tuple[Port, ...], Meta(max_length=65535)] = ()  # of the range, in order
    # port -> owner, where known
    taken_ports: Annotated[dict[Line, Text], Meta(max_length=65535)] = field(default_factory=dict)
    gpus: Annotated[tuple[Gpu, ...], Meta(max_length=1024)] = ()
    gpu_error: Text | None = None
    tensorflow: Version | None = None  # installed version, read without importing it
    tf_keras: Version | None = None  # the same
    keras: Version | None = None  # the same
    numpy: Version | None = None  # the same
    modules: Modules = field(default_factory=dict)  # those asked for -> whether `import` finds them
    cpu_only: bool = False  # that TensorFlow was built without GPUs
    rsync: Line | None = None  # version; None: missing
    # the folder that `setup` made for this job; `python` and versions are those in it
    environment: AbsolutePath | None = None
    proxies: Variables = ()  # names of proxy variables set there
    preset: Variables = ()  # names of variables set there that the plan sets for each task
    keep: Annotated[tuple[KeepFact, ...], Meta(max_length=1000)] = ()
    live_runs: Annotated[tuple[LiveRun, ...], Meta(max_length=10_000)] = ()
    linger: bool | None = None  # None: no logind
    kill_user_processes: bool = False
    # IP addresses of all its interfaces, without loopback and link-local ones
    addresses: Texts = ()
    protect: Hindrances = field(default_factory=Hindrances)
    # the first word of the command; False also where it was not asked for
    lacks_program: bool = False
    problems: Texts = ()  # what will not work on this host, in words
    preflight: Preflight | None = None  # None: not asked for
    version: Line = ""  # the agent's version

    def refuse_nonsense(
        self, ports: tuple[int, int], names: Collection[str], modules: Collection[str] = ()
    ) -> None:
        """Raise ValueError if the facts contradict what was asked. `ports`: the range; `names`: the
        cluster's names; `modules`: of Python."""
        low, high = ports
        if self.ssh_server_address is not None and not is_ip(self.ssh_server_address):
            raise ValueError(f"{self.ssh_server_address!r:.200} is no address")
        if not all(is_ip(address) for address in self.addresses):
            raise ValueError("addresses that are none")
        if not all(low <= port <= high for port in self.free_ports):
            raise ValueError(f"free ports outside {low}-{high}")
        if not set(self.hosts_file_loopback) <= set(names):
            raise ValueError("loopback names that were not asked for")
        if not set(self.resolved) <= set(names):
            raise ValueError("addresses of names that were not asked for")
        if not all(is_ip(address) for addresses in self.resolved.values() for address in addresses):
            raise ValueError("addresses of names that are none")
        if not set(self.modules) <= set(modules):
            raise ValueError("modules that were not asked for")


PROBE = Verb("probe", HostFacts)
