"""Convert between a plan and the plan on a host: choose what is sent, and check what is read back.
Pure.

A host may be hostile. So only names, advertised addresses, ports and figures are taken from its
plan, and each is checked here. The SSH settings, the interpreter and the metrics' regular
expressions come from this machine alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields, replace
from functools import cache
from typing import Annotated, Any, Literal, get_type_hints

import msgspec
from msgspec import Meta

from tfdeploy.model.allowed import is_address, is_endpoint, is_ip
from tfdeploy.model.answers.bounds import Name, Port, Variable
from tfdeploy.model.answers.listing import is_inside
from tfdeploy.model.answers.reading import read_text
from tfdeploy.model.inventory import Host, settings_of
from tfdeploy.model.job import StallAction
from tfdeploy.model.plan import HostPlan, PartPlan, Plan, TaskPlan
from tfdeploy.model.text.ranges import MAX_NAMES

MOST_TASKS = 100_000  # the most tasks of a plan that a host sends
MOST_NOTES = 1000  # the most notes that are shown of a plan that a host sends
_SHOWN_CHARS = 2000  # the most characters of a text that is only shown; the rest is cut off

_Duration = Annotated[float, Meta(ge=0, le=86_400 * 365)]
# field -> a narrower type, for fields whose types in Plan allow more than a host may send.
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
    "created": Annotated[float, Meta(ge=0, le=1e11)],  # UTC seconds, as answers.bounds.Seconds
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


def with_connections(plan: Plan, hosts: Iterable[Host]) -> Plan:
    """Return the plan with the SSH settings of `hosts`, the inventory's hosts. A host of the plan
    that is not in the inventory gets no address."""
    known = {host.name: host for host in hosts}
    settings = {
        each.host: connection_settings(known.get(each.host) or Host(each.host, ""))
        for each in plan.hosts
    }
    return replace(plan, hosts=tuple(replace(each, ssh=settings[each.host]) for each in plan.hosts))


def connection_settings(host: Host) -> dict[str, Any]:
    """Return the inventory's host as JSON values (lists, no tuples), so that a plan equals itself
    after a round trip. Paths on this machine in the host's settings need not be UTF-8."""
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in settings_of(host).items()
    }


def read_shown(content: bytes, run: str, job: str, metrics: Mapping[str, str]) -> Plan:
    """Return the trusted fields of a host's plan.json, of any version, as the plan of `run`. Raises
    ValueError that says what is wrong with the file.

    The tasks' commands and environments are left out. `metrics`, from this machine, replace the
    plan's own, because matching a hostile regular expression could take forever.
    """
    plan = _read(content)
    _need(
        plan.run == run and plan.job == job,
        "it is the plan of another run",
        f"{plan.run} of {plan.job}",
    )
    _check_hosts(plan.hosts)
    _check_tasks(plan.tasks, {host.host for host in plan.hosts})
    _check_names(plan)
    return replace(
        plan,
        tasks=tuple(replace(task, why=printable(task.why)) for task in plan.tasks),
        hosts=tuple(
            replace(
                host,
                versions={printable(key): printable(text) for key, text in host.versions.items()},
            )
            for host in plan.hosts
        ),
        operator=printable(plan.operator),
        resume=None if plan.resume is None else printable(plan.resume),
        restart=printable(plan.restart),
        notes=tuple(printable(note) for note in plan.notes[:MOST_NOTES]),
        metrics=dict(metrics),
        protect=replace(plan.protect, why=printable(plan.protect.why)),
    )


def _read(content: bytes) -> Plan:
    shown = read_text(content, _shown())
    tasks = tuple(TaskPlan(**_fields(task), argv=(), env={}) for task in shown.tasks)
    hosts = tuple(HostPlan(**_fields(host), workdir="", python="") for host in shown.hosts)
    return Plan(**{**_fields(shown), "tasks": tasks, "hosts": hosts, "command": (), "metrics": {}})


@cache
def _shown() -> type[Any]:
    """Return a type like Plan without the fields that are not taken from hosts, so that those
    fields are not decoded."""
    task: Any = _shape(TaskPlan, ("argv", "env"), _TASK_FIELDS)
    host: Any = _shape(HostPlan, ("ssh", "workdir", "python"), _HOST_FIELDS)
    tasks = Annotated[tuple[task, ...], Meta(max_length=MOST_TASKS)]
    hosts = Annotated[tuple[host, ...], Meta(min_length=1, max_length=MAX_NAMES)]
    return _shape(Plan, ("command", "metrics"), {**_PLAN_FIELDS, "tasks": tasks, "hosts": hosts})


def _shape(cls: type[Any], without: tuple[str, ...], narrower: Mapping[str, Any]) -> type[Any]:
    hints = {**get_type_hints(cls), **narrower}
    made: list[Any] = []
    for field in fields(cls):
        if field.name not in without:
            given = {"default": field.default, "default_factory": field.default_factory}
            default: dict[str, Any] = {
                name: value for name, value in given.items() if value is not MISSING
            }
            made.append((field.name, hints[field.name], msgspec.field(**default)))
    return msgspec.defstruct(cls.__name__, made)


def _fields(struct: Any) -> dict[str, Any]:
    return {name: getattr(struct, name) for name in struct.__struct_fields__}


def printable(text: str) -> str:
    """Return the text as one printable line of bounded length. Use it for text that is only
    shown."""
    return "".join(char if char.isprintable() else "?" for char in text[:_SHOWN_CHARS])


def _check_hosts(hosts: tuple[HostPlan, ...]) -> None:
    _need(len({host.host for host in hosts}) == len(hosts), "a host twice", "")
    _all("no address", is_address, (host.address for host in hosts))
    _all("no address", is_ip, (address for host in hosts for address in host.addresses))


def _check_tasks(tasks: tuple[TaskPlan, ...], hosts: set[str]) -> None:
    for task in tasks:
        _need(task.task == f"{task.role}:{task.index}", "no task", task.task)
        _need(task.host in hosts, f"no host of {task.task}", task.host)
        _need(
            not task.address or is_endpoint(task.address),
            f"no address of {task.task}",
            task.address,
        )
    _need(len({task.task for task in tasks}) == len(tasks), "a task twice", "")


def _check_names(plan: Plan) -> None:
    tasks = {task.task for task in plan.tasks}
    hosts = {host.host for host in plan.hosts}
    parts = [part for parts in plan.parts.values() for part in parts]
    _all("no task of the run", tasks.__contains__, (*plan.deciding, *(part.task for part in parts)))
    _all(
        "no host of the run",
        hosts.__contains__,
        (*plan.protect.hosts, *(part.host for part in parts)),
    )
    _need(
        plan.supply_from is None or plan.supply_from in hosts,
        "no host of the run",
        str(plan.supply_from),
    )
    _all(
        "no address",
        is_endpoint,
        (each for endpoints in plan.cluster.values() for each in endpoints),
    )
    _all("no path inside a folder", is_inside, (*plan.keep, *plan.links, *plan.data.values()))


def _all(what: str, good: Callable[[Any], bool], values: Iterable[Any]) -> None:
    for value in values:
        _need(good(value), what, str(value))


def _need(good: bool, what: str, shown: str) -> None:
    if not good:
        raise ValueError(f"{what}: {printable(shown)[:200]!r}" if shown else what)
