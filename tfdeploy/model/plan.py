"""Define the plan: the value that a launch executes. A plan is frozen, is equal by value, and
survives a round trip through JSON.

The plan's cluster has roles and endpoints. Each task reads the cluster from TF_CONFIG.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from tfdeploy.model.job import Mode, Protection
from tfdeploy.text.typed import convert

PLAN_VERSION = 1
Notes = tuple[str, ...]  # lines of a plan for its reader, such as reasons and warnings
Cluster = Mapping[str, tuple[str, ...]]  # {role: endpoints, by index}


def endpoint(address: str, port: int) -> str:
    """Return the address and port as text such as "192.0.2.10:2222", with brackets around an IPv6
    address."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def cluster_json(cluster: Cluster) -> str:
    return json.dumps(dict(cluster), separators=(",", ":"))


def tf_config(cluster: Cluster, role: str, index: int) -> str:
    """Return the TF_CONFIG of one task. The evaluator must not be in `cluster`: no task connects to
    the evaluator, so a chief that waits for all tasks of the cluster would wait forever."""
    task = {"type": role, "index": index}
    return json.dumps({"cluster": dict(cluster), "task": task}, separators=(",", ":"))


@dataclass(frozen=True)
class TaskPlan:
    """One process of the cluster."""

    task: str  # "worker:0"
    role: str
    index: int
    host: str
    # the endpoint to which other tasks connect, "192.0.2.11:2223"; "" if the task does not listen
    address: str
    port: int | None
    gpus: tuple[int, ...]
    argv: tuple[str, ...]
    env: dict[str, str]  # environment variables, without secrets
    deciding: bool
    why: str  # why planning chose this host and these GPUs
    # True for a server that never ends by itself. The server is stopped when the deciding tasks
    # (those whose success ends the run) have succeeded.
    serves: bool = False
    # What happens if this task dies. "alone": only this task restarts. "gang": all tasks of the
    # gang restart together. "": the run fails.
    on_death: str = ""
    gang: bool = False  # True if the task is one of the tasks that restart together (the gang)


@dataclass(frozen=True)
class HostPlan:
    """One host of the run."""

    host: str
    address: str  # the address to which other hosts connect, without port
    mesh_port: int
    workdir: str  # absolute on the host
    python: str
    # all IP addresses of the host; connections of the run may come from any of these
    addresses: tuple[str, ...] = ()
    # {program: its version on the host at the launch}
    versions: dict[str, str] = field(default_factory=dict)
    # the inventory's Host, with which later verbs connect; never sent to a host
    ssh: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class PartPlan:
    """One part of a data set with `split`. A field is None if it is not known, because nothing is
    sent (--no-sync)."""

    task: str
    host: str
    files: int | None = None
    bytes: int | None = None


@dataclass(frozen=True)
class Plan:
    """A plan. Durations in seconds, sizes in bytes, `created` in UTC seconds."""

    run: str
    job: str
    mode: Mode
    created: float
    operator: str  # user@machine
    release: str
    # the job's command with its placeholders; the commands in `tasks` have the values
    command: tuple[str, ...]
    cluster: dict[str, tuple[str, ...]]  # {role: addresses, by index}
    hosts: tuple[HostPlan, ...]
    tasks: tuple[TaskPlan, ...]
    deciding: tuple[str, ...]
    # names of the flags that tfdeploy appends to the command, in order
    flags_appended: tuple[str, ...]
    keep: tuple[str, ...] = ()
    # {name: path of the data set}, relative to the job's folder on every host
    data: dict[str, str] = field(default_factory=dict)
    # {path of a link in the code: name of the data set to which the link leads}
    links: dict[str, str] = field(default_factory=dict)
    # {data set with `split`: its parts, by number}
    parts: dict[str, tuple[PartPlan, ...]] = field(default_factory=dict)
    secrets: tuple[str, ...] = ()  # names of the secrets, not the values
    # the tasks' working directory, relative to the code folder; "" is the code folder itself
    cwd: str = ""
    ready_after_s: float = 5.0
    ready_timeout_s: float = 120.0
    finish_grace_s: float = 60.0
    stop_grace_s: float = 20.0
    logs_max_bytes: int = 1 << 30
    metrics: dict[str, str] = field(default_factory=dict)
    # If True, a host sends a metric within a second after the task wrote the line that contains it.
    hosts_tell_metrics: bool = False
    resume: str | None = None  # "checkpoints: model.ckpt-1200 on n2"; None: the run starts anew
    # If True, each host moves the content of its `keep` folders aside before the start.
    fresh: bool = False
    # In mode mirrored: the host whose `keep` folders are copied to all hosts of the run before the
    # start.
    keep_from: str | None = None
    # Notes for the reader: what planning chose and why, which settings of the program it made
    # harmless, and what the user should watch for.
    notes: tuple[str, ...] = ()
    restart: str = "never (restart.max is 0)"  # the restart policy, as text
    restart_max: int = 0
    restart_backoff_s: tuple[float, float] = (1.0, 60.0)
    # Seconds. A minder is the process that supervises a host's tasks. If a host has no live minder
    # of the run for this long, the host's tasks are lost for good.
    restart_wait_s: float = 3600.0
    # If True, a task that fails twice with the same error before its first step is not restarted.
    same_error_ends: bool = False
    # After this many seconds without progress, a task counts as stalled. 0: stalls are not
    # detected.
    stall_after_s: float = 0.0
    stall_action: str = "report"  # one of model.job.StallAction
    # In mode mirrored: before the tasks of the gang restart, the `keep` folders of this host are
    # copied to the hosts of all these tasks.
    supply_from: str | None = None
    protect: Protection = field(default_factory=Protection)
    version: int = PLAN_VERSION

    @property
    def digest(self) -> str:
        """Return 16 hex digits of a hash over the fields of this plan that are sent to hosts. Two
        launches with the same run and digest are the same launch."""
        return hashlib.sha256(_to_sorted_json(without_ssh_settings(self))).hexdigest()[:16]

    @property
    def run_args(self) -> dict[str, str]:
        """Return the arguments that tell a verb of an agent which run is meant."""
        return {"run": self.run, "job": self.job}

    @property
    def versions(self) -> dict[str, dict[str, str]]:
        """Return {host: {program: version}}. A host is missing if an older tfdeploy launched the
        run."""
        return {host.host: host.versions for host in self.hosts if host.versions}

    @property
    def host_names(self) -> tuple[str, ...]:
        return tuple(host.host for host in self.hosts)

    def host(self, name: str) -> HostPlan:
        """Return what the plan says about the host. Raises KeyError for an unknown host."""
        return {host.host: host for host in self.hosts}[name]


def without_ssh_settings(plan: Plan) -> Plan:
    """Return the plan without the SSH settings, which only this machine needs."""
    return replace(plan, hosts=tuple(replace(host, ssh={}) for host in plan.hosts))


def _to_sorted_json(plan: Plan) -> bytes:
    try:
        return msgspec.json.encode(plan, order="deterministic")
    except UnicodeEncodeError:
        # A path in the plan, such as that of a home folder, is not valid UTF-8.
        return json.dumps(msgspec.to_builtins(plan), sort_keys=True).encode("ascii")


def plan_to_json(plan: Plan) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(plan)
    return fields


def plan_from_json(fields: Mapping[str, object]) -> Plan:
    """Return the plan whose fields are in `fields`. Raises msgspec.ValidationError if `fields` are
    not a plan."""
    return convert(fields, Plan)
