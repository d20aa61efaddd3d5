"""Convert a plan to the compact form that it has in files and on hosts, and back. Check the plan
file that a host sends. The functions are pure.

The command and environment of each task contain the addresses of the cluster, so the size of a
complete plan would grow with the square of the number of hosts. In the compact form, the long texts
that describe the cluster are stored only once. An argument or value that contains such a text
becomes a list of texts and numbers. A number is an index into the plan's `texts`: see
agent/wire.resolve_word.

A host may be hostile. So only names, advertised addresses, ports and numbers are taken from the
host's copy of the plan, and each of them is checked here. The SSH settings, the interpreter and the
metrics' regular expressions come from this machine alone.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields, replace
from functools import cache
from itertools import chain
from typing import Annotated, Any, Literal, get_type_hints

import msgspec
from msgspec import Meta
from msgspec.structs import asdict

from tfdeploy.agent import wire
from tfdeploy.model.job import StallAction
from tfdeploy.model.plan import (
    PLAN_VERSION,
    HostPlan,
    PartPlan,
    Plan,
    TaskPlan,
    cluster_json,
    plan_from_json,
    plan_to_json,
)
from tfdeploy.text.allowed import is_address, is_endpoint, is_ip, to_printable_line
from tfdeploy.text.names import MAX_NAMES
from tfdeploy.text.typed import Name, Port, Variable, decode_untrusted, is_safe_relative_path

# The version of plan.json. In version 1, all arguments and values are complete texts, as in the
# output of `--dry-run --json`.
VERSION = 2
_LEAST_CHARS = 64  # a text with fewer characters is not replaced by its index


def shared_texts_of(plan: Plan) -> tuple[str, ...]:
    """Return the long texts that may be in the command or environment of every task: the cluster as
    JSON, the addresses of each role, and the addresses of all hosts. The longest text is first."""
    alone = cluster_json(plan.cluster)
    joined = [",".join(endpoints) for endpoints in plan.cluster.values()]
    around = ",".join(dict.fromkeys(host.address for host in plan.hosts))
    shared_texts = {text for text in (alone, *joined, around) if len(text) >= _LEAST_CHARS}
    return tuple(sorted(shared_texts, key=lambda text: (-len(text), text)))


def pack_value(word: str, shared_texts: Iterable[str]) -> str | list[str | int]:
    """Return the packed form of `word`, which is an argument or a variable's value. Each occurrence
    of a text of `shared_texts` is replaced by the text's index. A short word, or a word without
    such a text, is returned unchanged. The inverse function is wire.resolve_word."""
    if len(word) < _LEAST_CHARS:
        return word
    parts = _split_at_texts(word, list(enumerate(shared_texts)))
    return word if parts == [word] else parts


def pack_values(word_by_name: Mapping[str, str], shared_texts: Iterable[str]) -> dict[str, Any]:
    return {name: pack_value(word, shared_texts) for name, word in word_by_name.items()}


def plan_to_file(plan: Plan) -> dict[str, Any]:
    """Return the plan as the JSON object of plan.json."""
    texts = shared_texts_of(plan)
    fields = plan_to_json(plan)
    for task in fields["tasks"]:
        task["argv"] = [pack_value(word, texts) for word in task["argv"]]
        task["env"] = pack_values(task["env"], texts)
    return {**fields, "version": VERSION, "texts": list(texts)}


def plan_from_file(content: bytes) -> Plan:
    """Return a plan of this version or an older one. Raises ValueError or msgspec.ValidationError
    if `content` is not a plan."""
    fields = json.loads(content)
    if not isinstance(fields, dict):
        raise ValueError("no object")
    texts = fields.pop("texts", [])
    for task in fields.get("tasks", ()) if texts else ():
        task["argv"] = [wire.resolve_word(word, texts) for word in task["argv"]]
        task["env"] = {name: wire.resolve_word(word, texts) for name, word in task["env"].items()}
    return plan_from_json({**fields, "version": PLAN_VERSION})


def _split_at_texts(word: str, texts: list[tuple[int, str]]) -> list[str | int]:
    for position, (number, text) in enumerate(texts):
        before, pieces, after = word.partition(text)
        if pieces:
            remaining_texts = texts[position:]
            return [
                *(_split_at_texts(before, remaining_texts) if before else ()),
                number,
                *(_split_at_texts(after, remaining_texts) if after else ()),
            ]
    return [word]


MOST_TASKS = 100_000  # the most tasks in a plan that comes from a host
MOST_NOTES = 1000  # the most notes that are shown, if the plan comes from a host

_Duration = Annotated[float, Meta(ge=0, le=86_400 * 365)]
# {field: the type of the values that a host may send}. For these fields, the types in the plan's
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


def read_untrusted_plan(
    content: bytes, run: str, job: str, regex_by_metric: Mapping[str, str]
) -> Plan:
    """Read a host's plan.json, of any version of the file. Return the plan of `run`, with only the
    fields that this machine may trust. Raises ValueError that says what is wrong with the file.

    The tasks' commands and environments are left out. The file's metrics are replaced by
    `regex_by_metric`, which comes from this machine, so that no hostile regular expression is ever
    matched here.
    """
    plan = _decode_trusted_fields(content)
    if (plan.run, plan.job) != (run, job):
        raise ValueError(
            f"the file has the plan of another run: {plan.run!r:.200} of {plan.job!r:.200}"
        )
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
        metrics=dict(regex_by_metric),
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
    # {what is wrong with a value: the values with which this is wrong}
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
