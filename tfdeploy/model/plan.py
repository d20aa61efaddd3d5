"""Define the plan: the pure value that a launch carries out. Frozen, equal by value, round-trips
through JSON."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from tfdeploy.model.job import Mode
from tfdeploy.model.protect import Protection
from tfdeploy.model.typed import convert

PLAN_VERSION = 1


@dataclass(frozen=True)
class TaskPlan:
    """One process of the cluster."""

    task: str  # "worker:0"
    role: str
    index: int
    host: str
    # at which the other tasks reach it: "192.0.2.11:2223"; "" for a task that does not listen
    address: str
    port: int | None
    gpus: tuple[int, ...]
    argv: tuple[str, ...]
    env: dict[str, str]  # without secrets
    deciding: bool
    why: str  # why this host, these GPUs
    # a server that never ends by itself: ended once the deciding tasks have succeeded
    serves: bool = False
    on_death: str = ""  # it starts again "alone", or with the "gang"; "": the run fails
    gang: bool = False  # a member of the gang: its tasks start again together


@dataclass(frozen=True)
class HostPlan:
    """One host of the run."""

    host: str
    address: str  # at which the other hosts reach it, without port
    mesh_port: int
    workdir: str  # absolute on the host
    python: str
    # all its IP addresses: connections of the run may come from each of them
    addresses: tuple[str, ...] = ()
    # program -> version, as the host had it at the launch
    versions: dict[str, str] = field(default_factory=dict)
    # the inventory's Host, by which later verbs reach it; never sent to a host
    ssh: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class PartPlan:
    """One part of a data set with `split`. None: not known, because nothing is sent (--no-sync)."""

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
    command: tuple[str, ...]  # as written
    cluster: dict[str, tuple[str, ...]]  # role -> addresses, by index
    hosts: tuple[HostPlan, ...]
    tasks: tuple[TaskPlan, ...]
    deciding: tuple[str, ...]
    flags_appended: tuple[str, ...]  # names, in order
    keep: tuple[str, ...] = ()
    # name -> absolute path on every host's workdir, relative to job dir
    data: dict[str, str] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)  # path in the code -> data set's name
    # data set with `split` -> its parts, by number
    parts: dict[str, tuple[PartPlan, ...]] = field(default_factory=dict)
    secrets: tuple[str, ...] = ()  # names only
    cwd: str = ""  # the folder inside the code in which the tasks start; "": its top
    ready_after_s: float = 5.0
    ready_timeout_s: float = 120.0
    finish_grace_s: float = 60.0
    stop_grace_s: float = 20.0
    logs_max_bytes: int = 1 << 30
    metrics: dict[str, str] = field(default_factory=dict)
    # Within a second of the line. False: a run of 0.1.0, whose lines the operator's machine
    # matches.
    hosts_tell_metrics: bool = False
    resume: str | None = None  # "checkpoints: model.ckpt-1200 on n2", or None: starts from zero
    fresh: bool = False  # each host sets aside what lies in `keep` before the start
    # the host whose `keep` goes to all hosts of the run before the start (mirrored)
    keep_from: str | None = None
    notes: tuple[str, ...] = ()  # what was chosen and why, what was neutralised, what to watch for
    restart: str = "never (restart.max is 0)"  # the rule, in words
    restart_max: int = 0
    restart_backoff_s: tuple[float, float] = (1.0, 60.0)
    # after so long without a minder, the tasks of a host are lost for good
    restart_wait_s: float = 3600.0
    # a task that fails twice with the same error before its first step does not start again
    same_error_ends: bool = False
    stall_after_s: float = 0.0  # 0: stalls are not looked for
    stall_action: str = "report"  # model.job.StallAction
    # the host whose `keep` lies on all disks of the gang before it starts again (mirrored)
    supply_from: str | None = None
    protect: Protection = field(default_factory=Protection)
    version: int = PLAN_VERSION

    @property
    def digest(self) -> str:
        """Return 16 hex digits over what hosts get of this plan: launch is idempotent by run and
        digest."""
        return hashlib.sha256(_encoded(for_hosts(self))).hexdigest()[:16]

    @property
    def versions(self) -> dict[str, dict[str, str]]:
        """Return host -> program -> version; none for a host of a run that an older tfdeploy
        launched."""
        return {host.host: host.versions for host in self.hosts if host.versions}

    def host(self, name: str) -> HostPlan:
        """Return the host's plan. Raises KeyError."""
        return {host.host: host for host in self.hosts}[name]


def for_hosts(plan: Plan) -> Plan:
    """Return the plan without the SSH settings, which only this machine needs."""
    return replace(plan, hosts=tuple(replace(host, ssh={}) for host in plan.hosts))


def _encoded(plan: Plan) -> bytes:
    try:
        return msgspec.json.encode(plan, order="deterministic")
    except UnicodeEncodeError:  # a home whose name is not UTF-8
        return json.dumps(msgspec.to_builtins(plan), sort_keys=True).encode("ascii")


def plan_to_json(plan: Plan) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(plan)
    return fields


def plan_from_json(fields: Mapping[str, object]) -> Plan:
    """Return the plan. Raises msgspec.ValidationError if `fields` are not a plan."""
    return convert(fields, Plan)
