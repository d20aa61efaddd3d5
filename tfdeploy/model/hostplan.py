"""Check a run's plan that a host sends back, and add the SSH settings, which only this machine has.
Pure.

A host may be hostile. So only names, advertised addresses, ports and figures are taken from the
host's copy of the plan, and each is checked here. The SSH settings, the interpreter and the
metrics' regular expressions come from this machine alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields, replace
from functools import cache
from itertools import chain
from typing import Annotated, Any, Literal, get_type_hints

import msgspec
from msgspec import Meta
from msgspec.structs import asdict

from tfdeploy.model.allowed import is_address, is_endpoint, is_ip, to_printable_line
from tfdeploy.model.inventory import Host, settings_of
from tfdeploy.model.job import StallAction
from tfdeploy.model.plan import HostPlan, PartPlan, Plan, TaskPlan
from tfdeploy.model.text.names import MAX_NAMES
from tfdeploy.model.typed import Name, Port, Variable, decode_untrusted, is_safe_relative_path

MOST_TASKS = 100_000  # the most tasks in a plan that comes from a host
MOST_NOTES = 1000  # the most notes that are shown, if the plan comes from a host

_Duration = Annotated[float, Meta(ge=0, le=86_400 * 365)]
# field -> the type of the values that a host may send. For these fields, the types in the plan's
# own classes also allow other values.
_TASK_FIELDS: dict[str, Any] = {
    "role": Name,
    "index": Annotated[int, Meta(ge=0, lt=MOST_TASKS)],
    "port": Port | None,
    "gpus": tuple[Annotated[int, Meta(ge=0, lt=1024)], ...],
    "on_death": Literal["", "alone", "gang"],
}
_HOST_FIELDS: dict[str, Any] = {
    "host": Name,
    "mesh_port": Port,
    "versions": Annotated[dict[str, str], Meta(max_length=50)],
}
_PLAN_FIELDS: dict[str, Any] = {
    "created": Annotated[float, Meta(ge=0, le=1e11)],  # UTC seconds
    "release": Name,
    "cluster": dict[Name, tuple[str, ...]],
    "flags_appended": tuple[Name, ...],
    "data": dict[Name, str],
    "links": dict[str, Name],
    "parts": dict[Name, tuple[PartPlan, ...]],
    "secrets": tuple[Variable, ...],
    "ready_after_s": _Duration,
    "ready_timeout_s": _Duration,
    "finish_grace_s": _Duration,
    "stop_grace_s": _Duration,
    "logs_max_bytes": Annotated[int, Meta(ge=0, le=1 << 50)],
    "keep_from": Name | None,  # a host's name; the host may have no task in the run
    "restart_max": Annotated[int, Meta(ge=0, le=1000)],
    "restart_backoff_s": tuple[_Duration, _Duration],
    "restart_wait_s": _Duration,
    "stall_after_s": _Duration,
    "stall_action": StallAction,
}


def with_ssh_settings(plan: Plan, hosts: Iterable[Host]) -> Plan:
    """Return the plan with the SSH settings of `hosts`, the inventory's hosts. A host of the plan
    that is not in the inventory gets no address."""
    known = {host.name: host for host in hosts}
    settings = {
        each.host: ssh_settings_of(known.get(each.host) or Host(each.host, ""))
        for each in plan.hosts
    }
    return replace(plan, hosts=tuple(replace(each, ssh=settings[each.host]) for each in plan.hosts))


def ssh_settings_of(host: Host) -> dict[str, Any]:
    """Return the settings of a host of the inventory as JSON values. They have lists instead of
    tuples, so that a round trip through JSON does not change a plan. The settings may contain paths
    on this machine that are not valid UTF-8."""
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in settings_of(host).items()
    }


def read_untrusted_plan(content: bytes, run: str, job: str, metrics: Mapping[str, str]) -> Plan:
    """Read a host's plan.json, of any version of the file. Return the plan of `run`, with only the
    fields that this machine may trust. Raises ValueError that says what is wrong with the file.

    The tasks' commands and environments are left out. The file's regular expressions of metrics are
    replaced by `metrics`, which come from this machine: matching a hostile expression could take
    forever.
    """
    plan = _decode_trusted_fields(content)
    if (plan.run, plan.job) != (run, job):
        raise ValueError(f"it is the plan of another run: {plan.run!r:.200} of {plan.job!r:.200}")
    _refuse_invalid_names(plan)
    return replace(
        plan,
        tasks=tuple(replace(task, why=to_printable_line(task.why)) for task in plan.tasks),
        hosts=tuple(
            replace(
                host,
                versions={
                    to_printable_line(key): to_printable_line(text)
                    for key, text in host.versions.items()
                },
            )
            for host in plan.hosts
        ),
        operator=to_printable_line(plan.operator),
        resume=None if plan.resume is None else to_printable_line(plan.resume),
        restart=to_printable_line(plan.restart),
        notes=tuple(to_printable_line(note) for note in plan.notes[:MOST_NOTES]),
        metrics=dict(metrics),
        protect=replace(plan.protect, why=to_printable_line(plan.protect.why)),
    )


def _decode_trusted_fields(content: bytes) -> Plan:
    shown = decode_untrusted(content, _trusted_plan_type())
    tasks = tuple(TaskPlan(**asdict(task), argv=(), env={}) for task in shown.tasks)
    hosts = tuple(HostPlan(**asdict(host), workdir="", python="") for host in shown.hosts)
    return Plan(**{**asdict(shown), "tasks": tasks, "hosts": hosts, "command": (), "metrics": {}})


@cache
def _trusted_plan_type() -> type[Any]:
    """Return a type that has only those fields of Plan that are taken from hosts. All other fields
    are then not decoded."""
    task: Any = _narrowed_type(TaskPlan, ("argv", "env"), _TASK_FIELDS)
    host: Any = _narrowed_type(HostPlan, ("ssh", "workdir", "python"), _HOST_FIELDS)
    tasks = Annotated[tuple[task, ...], Meta(max_length=MOST_TASKS)]
    hosts = Annotated[tuple[host, ...], Meta(min_length=1, max_length=MAX_NAMES)]
    return _narrowed_type(
        Plan, ("command", "metrics"), {**_PLAN_FIELDS, "tasks": tasks, "hosts": hosts}
    )


def _narrowed_type(
    cls: type[Any], left_out: tuple[str, ...], narrower: Mapping[str, Any]
) -> type[Any]:
    hints = {**get_type_hints(cls), **narrower}
    made: list[Any] = []
    for field in fields(cls):
        if field.name not in left_out:
            given = {"default": field.default, "default_factory": field.default_factory}
            default: dict[str, Any] = {
                name: value for name, value in given.items() if value is not MISSING
            }
            made.append((field.name, hints[field.name], msgspec.field(**default)))
    return msgspec.defstruct(cls.__name__, made)


def _refuse_invalid_names(plan: Plan) -> None:
    """Raise ValueError unless all names, addresses and paths of the plan are valid."""
    tasks, hosts = Counter(t.task for t in plan.tasks), Counter(h.host for h in plan.hosts)
    parts = [part for parts in plan.parts.values() for part in parts]
    named_tasks = {*plan.deciding, *(part.task for part in parts)}
    on_hosts = {*(task.host for task in plan.tasks), *(part.host for part in parts)}
    named_hosts = {*plan.protect.hosts, *on_hosts, plan.supply_from}
    endpoints = chain(filter(None, (t.address for t in plan.tasks)), *plan.cluster.values())
    paths = (*plan.keep, *plan.links, *plan.data.values())
    # what is wrong with a value -> the values with which this is wrong
    faults: dict[str, Iterable[str | None]] = {
        "this name occurs twice": (name for name, count in (tasks + hosts).items() if count > 1),
        "not a task's name": (t.task for t in plan.tasks if t.task != f"{t.role}:{t.index}"),
        "not an address": (h.address for h in plan.hosts if not is_address(h.address)),
        "not an IP address": (a for h in plan.hosts for a in h.addresses if not is_ip(a)),
        "not an endpoint": (each for each in endpoints if not is_endpoint(each)),
        "not a task of the run": named_tasks - tasks.keys(),
        "not a host of the run": named_hosts - {*hosts, None},
        "not a relative path inside a folder": (
            path for path in paths if not is_safe_relative_path(path)
        ),
    }
    for fault, values in faults.items():
        for value in values:
            raise ValueError(f"{fault}: {value!r:.200}")
