"""What `probe` answers: the facts of a host. For annotations alone, as agent/answers.py: no process of the agent loads it."""

from __future__ import annotations

from typing import Dict, List, Optional, TypedDict


class Gpu(TypedDict):
    index: int
    uuid: str
    name: str
    memory_mib: int
    used_mib: int


class KeepFact(TypedDict):
    """One `keep` path that holds a file."""

    path: str
    newest: float  # mtime of its newest file
    checkpoint: Optional[str]  # that TensorFlow would go on from
    step: Optional[int]
    recorded: Optional[float]  # mtime of that record
    files: int
    bytes: int


class LiveRun(TypedDict):
    run: str
    who: str
    started: Optional[float]


class Hindrances(TypedDict):
    """What keeps a host from each level of `protect`, in words; "": nothing."""

    peers: str
    firewall: str
    most_instructions: int  # of a filter of its kernel


class Machine(TypedDict):
    """The facts of a host that do not depend on the question."""

    hostname: str
    user: str
    home: str
    workdir: str
    cores: int
    memory_bytes: int
    free_disk_bytes: int
    free_inodes: int
    boot_id: str
    ssh_server_address: Optional[str]
    proxies: List[str]  # names of variables
    preset: List[str]  # names of variables
    linger: Optional[bool]  # None: no logind
    kill_user_processes: bool
    addresses: List[str]  # IP addresses of all interfaces
    version: str  # of tfdeploy


class Versions(TypedDict):
    """The versions of an interpreter and of the packages that it imports; None: not installed."""

    python_version: Optional[str]
    tensorflow: Optional[str]
    tf_keras: Optional[str]
    keras: Optional[str]
    numpy: Optional[str]
    cpu_only: bool  # its TensorFlow was built without GPUs
    modules: Dict[str, bool]  # of those asked for: whether `import` would find them


class Room(TypedDict):
    """A folder of the system in which programs write."""

    path: str
    writable: bool
    free_bytes: int


class Mount(TypedDict):
    """The file system that holds a folder."""

    source: str
    point: str
    type: str
    options: List[str]


class Quota(TypedDict):
    """What this user may still have on the workdir's file system; None: without a limit."""

    left_bytes: Optional[int]
    left_files: Optional[int]
    over: bool  # over a soft limit: it becomes a hard one after the grace time


class Logout(TypedDict):
    """What logind does when the last session of this user ends."""

    kills: bool
    removes_ipc: bool


class Preflight(TypedDict):
    """The facts that only a preflight asks for."""

    limits: Dict[str, int]  # name -> soft limit of this session, of those that are set
    available_bytes: Optional[int]  # of memory
    shared_memory: Optional[Room]  # None: there is no /dev/shm
    temporary: Optional[Room]
    mount: Optional[Mount]  # of the workdir
    workdir_mode: Optional[int]
    quota: Optional[Quota]
    driver: Optional[str]  # of NVIDIA's GPUs
    nvidia_devices: int  # on the bus
    logout: Logout
    ephemeral_ports: int  # of the range, which the kernel may give to any connection


class Interpreter(Versions):
    python: Optional[str]
    environment: Optional[str]  # the folder of the job's environment, where that is its interpreter


class HostFacts(Machine, Interpreter):
    """model.facts.HostFacts, without host and clock_skew_s."""

    hosts_file_loopback: List[str]
    resolved: Dict[str, List[str]]  # name -> its IP addresses here; without those that no server told in time
    protect: Hindrances
    free_ports: List[int]
    taken_ports: Dict[str, str]  # port -> by whom
    keep: List[KeepFact]
    live_runs: List[LiveRun]
    lacks_program: bool  # the program that was asked for
    problems: List[str]
    rsync: Optional[str]
    uv: Optional[str]
    gpus: List[Gpu]
    gpu_error: Optional[str]
    preflight: Optional[Preflight]  # None: not asked for
    clock: float  # UTC
