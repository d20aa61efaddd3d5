"""Define events, by which operations report what happens. The run store records events, and
progress is computed from them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict

import msgspec

from tfdeploy.text.typed import decode

Kind = Literal[
    "step",  # the event's data: StepFields
    "host",  # the event's data: HostFields
    "transfer",  # the event's data: TransferFields
    "broadcast",  # the event's data: BroadcastFields
    "task",  # A task's status changed. The event's data: TaskFields
    "run",  # the event's data: RunFields
    # the resources that a run uses on one host, and the metrics of the run's tasks there. The
    # event's data: samples.NewestSamples
    "sample",
    "line",  # one line of a task's output, written only to --events FILE; its data: LineFields
    "note",  # the event's data: NoteFields
    "plan",  # the event's data: the plan's JSON (model.plan.plan_to_json)
]


class StepFields(TypedDict):
    step: str  # lock, probe, plan, sync, prepare, start, commit, rollback
    state: str  # begin, done, failed


class _HostFields(TypedDict):
    state: str  # connected, unreachable, failed, ready, prepared, started, committed


class HostFields(_HostFields, total=False):
    text: str


class _TransferFields(TypedDict):
    # What is transferred: "code", "data NAME", "keep", "files" or "logs". Once all transfers to the
    # host are done, an event with "all" has the sum of their bytes.
    what: str
    state: str  # begin, moving, done, failed
    sent_bytes: int
    total_bytes: int


class TransferFields(_TransferFields, total=False):
    done: str  # what was done with the data, such as "fetched"; "sent" if this field is missing


class _BroadcastFields(TypedDict):
    what: str  # "data NAME"
    state: str  # moving, done
    stripes: int
    feeds: list[tuple[str, str, int]]  # parent, child, stripe; the parent "" is this machine
    slow: list[str]  # hosts that receive or send far too slowly
    stuck: list[str]  # hosts that have received nothing for some seconds


class SlowestLink(TypedDict):
    host: str
    parents: list[str]
    rate: float  # bytes a second: the highest rate at which the host has received


class BroadcastFields(_BroadcastFields, total=False):
    """The fields of a broadcast's event. The fields that this class adds to _BroadcastFields are
    set only in the broadcast's last event. `total_bytes`: the bytes received by the host that
    received most."""

    hosts: int
    total_bytes: int
    sent_bytes: int  # bytes that this machine sent
    seconds: float
    slowest: SlowestLink | None  # None: the broadcast was too short to measure a rate


class TaskFields(TypedDict, total=False):
    """The fields of wire.TaskStatus that progress uses. An older agent may omit any of them."""

    task: str
    host: str
    state: str
    attempt: int
    up: bool
    outcome: str | None
    exit_code: int | None
    signal: int | None
    reason: str | None
    health: str | None
    health_reason: str | None
    health_since: float | None
    pid: int | None
    started: float | None
    ended: float | None


class RunFields(TypedDict, total=False):
    state: str  # one of wire.RUN_STATES
    cause: str | None
    left_files: dict[str, list[str]]  # {host: paths of files that tasks left in cwd/ on the host}
    ended: float | None  # UTC seconds at which the run ended, which is before the time of the event


class LineFields(TypedDict):
    stream: str
    line: str  # the line as the task wrote it, not sanitised
    offset: int


class NoteFields(TypedDict):
    level: str  # info, warning, error, or detail (shown only with --verbose)
    text: str


@dataclass(frozen=True)
class Event:
    """One event. `time`: UTC seconds. The time of a task or line event is by the clock of its host;
    the time of any other event is by the control machine's clock."""

    kind: Kind
    time: float
    run: str | None = None
    host: str | None = None
    task: str | None = None
    attempt: int | None = None
    # The fields of the event, which depend on its kind.
    data: Mapping[str, Any] = field(default_factory=dict)


Emit = Callable[[Event], None]


def event_to_json(event: Event) -> bytes:
    """Return the event as one line of JSON, without a newline. Bytes that were not UTF-8 (surrogate
    escapes) become U+FFFD."""
    try:
        return msgspec.json.encode(event)
    except UnicodeEncodeError:
        text = json.dumps(msgspec.to_builtins(event), ensure_ascii=False, separators=(",", ":"))
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace").encode()


def event_from_json(line: bytes) -> Event:
    return decode(line, Event)
