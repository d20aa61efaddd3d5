"""A plan on a host: the parts of a plan that are sent there, and the parts that are trusted in a plan read back. Pure.

A host may be broken into. So only names, advertised addresses, ports and figures are taken from its plan, each checked
here. How a host is reached, its interpreter and the metrics' regular expressions come from this machine alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields, replace
from functools import cache
from typing import Any, get_type_hints

import msgspec

from tfdeploy.model.allowed import VARIABLE, is_address, is_endpoint, is_ip, is_name, is_run
from tfdeploy.model.answers.reading import names_bytes, values_of
from tfdeploy.model.inventory import Host, settings_of
from tfdeploy.model.listing import is_inside
from tfdeploy.model.plan import HostPlan, Plan, TaskPlan
from tfdeploy.model.ranges import MAX_NAMES
from tfdeploy.model.typed import convert, decode

MOST_TASKS = 100_000
MOST_NOTES = 1000
MOST_VERSIONS = 50  # of a host
MOST_SECONDS = 86_400.0 * 365
MOST_CREATED = 1e11  # UTC seconds: as answers.bounds.Seconds
_SHOWN_CHARS = 2000


def with_connections(plan: Plan, hosts: Iterable[Host]) -> Plan:
    """The plan with the SSH settings of `hosts` (the inventory's). A host that it lacks gets no address."""
    known = {host.name: host for host in hosts}
    settings = {each.host: connection_settings(known.get(each.host) or Host(each.host, "")) for each in plan.hosts}
    return replace(plan, hosts=tuple(replace(each, ssh=settings[each.host]) for each in plan.hosts))


def connection_settings(host: Host) -> dict[str, Any]:
    """The inventory's host as JSON values (lists, no tuples), so that a plan equals itself after a round trip. Paths of this
    machine in it need not be UTF-8."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in settings_of(host).items()}


def read_shown(content: bytes, run: str, job: str, metrics: Mapping[str, str]) -> Plan:
    """The trusted parts of a host's plan.json for `run`, of any version. Raises ValueError that says what is wrong with it.

    The tasks' commands and environments are left out. `metrics` (this machine's) replace the plan's: a hostile regular
    expression could match for ever.
    """
    try:
        plan = _read(content)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise ValueError(str(error)) from error
    _need(plan.run == run and plan.job == job, "it is the plan of another run", f"{plan.run} of {plan.job}")
    _need(is_run(run) and is_name(job), "no name", f"{run} of {job}")
    _need(is_name(plan.release), "no name of a release", plan.release)
    _check_hosts(plan.hosts)
    _check_tasks(plan.tasks, {host.host for host in plan.hosts})
    _check_names(plan)
    _check_figures(plan)
    return replace(
        plan,
        tasks=tuple(replace(task, why=printable(task.why)) for task in plan.tasks),
        hosts=tuple(replace(host, versions=_printable(host.versions)) for host in plan.hosts),
        operator=printable(plan.operator),
        resume=None if plan.resume is None else printable(plan.resume),
        restart=printable(plan.restart),
        notes=tuple(printable(note) for note in plan.notes[:MOST_NOTES]),
        metrics=dict(metrics),
        protect=replace(plan.protect, why=printable(plan.protect.why)),
    )


def _read(content: bytes) -> Plan:
    try:
        shown = decode(content, _shown())
    except msgspec.DecodeError as error:
        if isinstance(error, msgspec.ValidationError) or not names_bytes(content):
            raise
        shown = convert(values_of(content), _shown())
    tasks = tuple(TaskPlan(**_fields(task), argv=(), env={}) for task in shown.tasks)
    hosts = tuple(HostPlan(**_fields(host), workdir="", python="") for host in shown.hosts)
    return Plan(**{**_fields(shown), "tasks": tasks, "hosts": hosts, "command": (), "metrics": {}})


@cache
def _shown() -> type[Any]:
    """The type of a plan without the fields that are not taken from hosts, so that these are not even decoded."""
    task: Any = _shape(TaskPlan, ("argv", "env"))
    host: Any = _shape(HostPlan, ("ssh", "workdir", "python"))
    return _shape(Plan, ("command", "metrics"), tasks=tuple[task, ...], hosts=tuple[host, ...])


def _shape(cls: type[Any], without: tuple[str, ...], **instead: Any) -> type[Any]:
    hints = get_type_hints(cls)
    made: list[Any] = []
    for field in fields(cls):
        if field.name not in without:
            given = {"default": field.default, "default_factory": field.default_factory}
            default: dict[str, Any] = {name: value for name, value in given.items() if value is not MISSING}
            made.append((field.name, instead.get(field.name, hints[field.name]), msgspec.field(**default)))
    return msgspec.defstruct(cls.__name__, made)


def _fields(struct: Any) -> dict[str, Any]:
    return {name: getattr(struct, name) for name in struct.__struct_fields__}


def printable(text: str) -> str:
    """One printable line of bounded length, for text that is only shown."""
    return "".join(char if char.isprintable() else "?" for char in text[:_SHOWN_CHARS])


def _printable(texts: Mapping[str, str]) -> dict[str, str]:
    return {printable(key): printable(text) for key, text in texts.items()}


def _check_hosts(hosts: tuple[HostPlan, ...]) -> None:
    _need(0 < len(hosts) <= MAX_NAMES, "hosts", str(len(hosts)))
    _all("no name of a host", is_name, (host.host for host in hosts))
    _need(len({host.host for host in hosts}) == len(hosts), "a host twice", "")
    _all("no address", is_address, (host.address for host in hosts))
    _all("no address", is_ip, (address for host in hosts for address in host.addresses))
    _all("no port", _is_port, (host.mesh_port for host in hosts))
    _need(all(len(host.versions) <= MOST_VERSIONS for host in hosts), "versions", "")


def _check_tasks(tasks: tuple[TaskPlan, ...], hosts: set[str]) -> None:
    _need(len(tasks) <= MOST_TASKS, "tasks", str(len(tasks)))
    _all("no role", is_name, (task.role for task in tasks))
    for task in tasks:
        _need(0 <= task.index < MOST_TASKS and task.task == f"{task.role}:{task.index}", "no task", task.task)
        _need(task.host in hosts, f"no host of {task.task}", task.host)
        _need(not task.address or is_endpoint(task.address), f"no address of {task.task}", task.address)
        _need(task.port is None or _is_port(task.port), f"no port of {task.task}", str(task.port))
        _need(task.on_death in ("", "alone", "gang"), f"no rule for {task.task}", task.on_death)
        _all(f"no GPU of {task.task}", lambda gpu: 0 <= gpu < 1024, task.gpus)
    _need(len({task.task for task in tasks}) == len(tasks), "a task twice", "")


def _check_names(plan: Plan) -> None:
    tasks = {task.task for task in plan.tasks}
    hosts = {host.host for host in plan.hosts}
    _all("no deciding task", tasks.__contains__, plan.deciding)
    _need(plan.keep_from is None or is_name(plan.keep_from), "no name of a host", str(plan.keep_from))  # it may have no task
    _need(plan.supply_from is None or plan.supply_from in hosts, "no host of the run", str(plan.supply_from))
    _need(set(plan.protect.hosts) <= hosts, "no host of the run", "protect")
    _all("no role", is_name, plan.cluster)
    for endpoints in plan.cluster.values():
        _all("no address", is_endpoint, endpoints)
    _all("no path inside a folder", is_inside, (*plan.keep, *plan.links, *plan.data.values()))
    _all("no name of a data set", is_name, (*plan.data, *plan.links.values()))
    _all("no name of a data set", is_name, plan.parts)
    for part in (part for parts in plan.parts.values() for part in parts):
        _need(part.task in tasks and part.host in hosts, "no task of the run", part.task)
    _all("no name of a variable", lambda name: bool(VARIABLE.match(name)), plan.secrets)
    _all("no flag", is_name, plan.flags_appended)
    _need(plan.stall_action in ("report", "restart"), "no action", plan.stall_action)


def _check_figures(plan: Plan) -> None:
    for field in fields(plan):
        value = getattr(plan, field.name)
        if field.name.endswith("_s") or field.name == "restart_backoff_s":
            for seconds in value if isinstance(value, tuple) else (value,):
                _need(math.isfinite(seconds) and 0 <= seconds <= MOST_SECONDS, field.name, str(seconds))
    _need(math.isfinite(plan.created) and 0 <= plan.created <= MOST_CREATED, "created", str(plan.created))
    _need(0 <= plan.logs_max_bytes <= 1 << 50, "logs_max_bytes", str(plan.logs_max_bytes))
    _need(0 <= plan.restart_max <= 1000, "restart_max", str(plan.restart_max))


def _is_port(port: int) -> bool:
    return 0 < port < 1 << 16


def _all(what: str, good: Callable[[Any], bool], values: Iterable[Any]) -> None:
    for value in values:
        _need(good(value), what, str(value))


def _need(good: bool, what: str, shown: str) -> None:
    if not good:
        raise ValueError(f"{what}: {printable(shown)[:200]!r}" if shown else what)
