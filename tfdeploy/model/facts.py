"""What probing found on a host. Facts go into planning; nothing there asks the host again."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Gpu:
    index: int
    name: str
    memory_mib: int
    used_mib: int
    uuid: str = ""


@dataclass(frozen=True)
class KeepFact:
    """The newest thing in one keep folder of this job: mtime is UTC seconds by the host's clock."""

    path: str  # as in the job file
    newest: float
    checkpoint: str | None = None  # "model.ckpt-1200", from TensorFlow's own `checkpoint` file
    step: int | None = None
    recorded: float | None = None  # when that `checkpoint` file was written, as `newest`

    @property
    def time(self) -> float:
        """What makes it newer than another: its checkpoint, where there is one, and not the log files beside it."""
        return self.newest if self.recorded is None else self.recorded

    def same_as(self, other: KeepFact) -> bool:
        """Whether both may be one folder, or a copy of it."""
        return (self.path, self.time, self.checkpoint) == (other.path, other.time, other.checkpoint)


@dataclass(frozen=True)
class LiveRun:
    """A run of this job that is alive on this host."""

    run: str
    who: str  # user@machine
    started: float | None = None


@dataclass(frozen=True)
class HostFacts:
    """One host at one moment. Bytes and UTC seconds; paths absolute."""

    host: str
    hostname: str
    user: str
    home: str
    workdir: str
    python: str | None  # the interpreter of the training program, absolute; None: not found
    python_version: str | None
    cores: int
    memory_bytes: int
    free_disk_bytes: int
    free_inodes: int
    boot_id: str
    clock: float  # host's UTC seconds when asked
    clock_skew_s: float = 0.0  # host minus control machine, as the session measured it
    ssh_server_address: str | None = None  # the server's side of SSH_CONNECTION
    hosts_file_loopback: tuple[str, ...] = ()  # cluster names that resolve to loopback here
    free_ports: tuple[int, ...] = ()  # of the range, in order
    taken_ports: dict[str, str] = field(default_factory=dict)  # port -> owner, where known
    gpus: tuple[Gpu, ...] = ()
    gpu_error: str | None = None
    tensorflow: str | None = None  # installed version, read without importing it
    tf_keras: str | None = None  # the same
    rsync: str | None = None  # version; None: missing
    uv: str | None = None  # version; None: missing
    environment: str | None = None  # folder of the one that `setup` made for this job: `python` and versions are then its own
    proxies: tuple[str, ...] = ()  # names of proxy variables set there
    preset: tuple[str, ...] = ()  # names of variables set there that the plan sets for each task
    keep: tuple[KeepFact, ...] = ()
    live_runs: tuple[LiveRun, ...] = ()
    linger: bool | None = None  # None: no logind
    kill_user_processes: bool = False
    problems: tuple[str, ...] = ()  # what will not work here, in words
    version: str = ""  # the agent's version
