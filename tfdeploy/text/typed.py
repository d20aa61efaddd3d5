"""Define the types of what a host may send, with limits, and convert JSON to typed values.

A host may send bounded texts, finite numbers, names from allow-lists and paths without control
characters. A caller names a verb of the agent by a Verb or StreamingVerb object, so the caller
knows the type of the answer. `transport` checks every answer against that type.

A record of `agent.wire` inside an answer is checked against a type that is built from the record's
own fields, so this type and the record always have the same fields. The records themselves have no
checks, because every process of the agent loads them, and hosts do not have msgspec.

No other module converts JSON from a host. A lock protects every conversion here: msgspec 0.22
crashes the process if two threads use a class for the first time at the same moment.
pyproject.toml also allows older releases, in which the errors of msgspec are not ValueErrors.
"""

from __future__ import annotations

import json
import threading
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, reduce
from operator import or_
from typing import Annotated, Any, Generic, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from tfdeploy.agent import errors, wire
from tfdeploy.agent import shapes as inner

V = TypeVar("V")
MOST_TEXT = 1 << 16
MOST_PATHS = 1_000_000
MOST_ROWS = 100_000  # the most rows of one list that a host sends
LONGEST_PATH = 4096  # the most characters of a path
_PLAIN = r"[^\x00-\x1f\x7f]"

# A `Text` may contain any characters. Only code in `ui` may show it, because `ui` makes it
# printable.
Text = Annotated[str, Meta(max_length=MOST_TEXT)]
Line = Annotated[str, Meta(max_length=4096, pattern=rf"\A{_PLAIN}*\Z")]
# The function is_safe_name of agent/errors.py checks the same pattern on the host.
Name = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}\Z")]
TaskName = Annotated[str, Meta(pattern=r"\A[a-z]{1,32}:[0-9]{1,7}\Z")]
# "" means that there is no task. One pattern allows both, because msgspec allows no union of two
# string types.
TaskNameOrNone = Annotated[str, Meta(pattern=r"\A([a-z]{1,32}:[0-9]{1,7})?\Z")]
Code = Annotated[str, Meta(pattern=r"\A[a-z_]{1,64}\Z")]
AbsolutePath = Annotated[str, Meta(max_length=4096, pattern=rf"\A/{_PLAIN}*\Z")]
# This type does not refuse `..`. The code that uses such a path must check that it has requested
# this path.
RelativePath = Annotated[str, Meta(min_length=1, max_length=4096)]
NameOrNone = Annotated[str, Meta(pattern=r"\A([A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?\Z")]
Digest = Annotated[str, Meta(pattern=r"\A[0-9a-f]{8,128}\Z")]
# A version of a Python package, with the characters that PEP 440 allows.
Version = Annotated[str, Meta(pattern=r"\A[0-9A-Za-z][0-9A-Za-z.+!_-]{0,63}\Z")]
# The name of a user on a host. It may become part of a command.
Account = Annotated[str, Meta(pattern=r"\A[\w.@+$\\-]{1,128}\Z")]
Variable = Annotated[str, Meta(pattern=r"\A[A-Za-z_][A-Za-z0-9_]{0,127}\Z")]

Count = Annotated[int, Meta(ge=0, le=1 << 53)]  # for numbers of bytes and files, and for pids
# For nanoseconds and the free bytes of a disk. msgspec allows no larger upper limit.
BigCount = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
Number = Annotated[int, Meta(ge=-(1 << 53), le=1 << 53)]
Int64 = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
Port = Annotated[int, Meta(ge=1, le=65535)]
# UTC seconds. The limits are times in the years 68 and 5138, so that datetime can represent every
# allowed time. NaN and infinity are refused too.
Seconds = Annotated[float, Meta(ge=-6e10, le=1e11)]

ShortText = Annotated[str, Meta(max_length=64)]  # for ids and digests
ByTask = Annotated[dict[TaskName, V], Meta(max_length=MOST_ROWS)]

Scalar = Text | Int64 | Seconds | bool | None
RelativePaths = Annotated[list[RelativePath], Meta(max_length=MOST_PATHS)]
Names = Annotated[list[Name], Meta(max_length=MOST_ROWS)]


def is_safe_relative_path(path: str) -> bool:
    """True if the path is relative, has no empty, `.` or `..` parts, and can exist in a file
    system."""
    if len(path) > LONGEST_PATH or not errors.is_safe_relative_path(path):
        return False
    try:
        return bool(path.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError:  # the path contains a lone surrogate
        return False


V_co = TypeVar("V_co", covariant=True)
I_co = TypeVar("I_co", covariant=True)  # the type of an item


# A verb's arguments by name. docs/agent-protocol.md lists the arguments of each verb. The host
# checks each argument.
Args = Mapping[str, object]


class Answer(msgspec.Struct, kw_only=True):
    """The answer of a host. Unknown fields are ignored, because a newer agent may send more."""


class EmptyAnswer(Answer):
    """The answer of verbs that return no data."""


@dataclass(frozen=True)
class Verb(Generic[V_co]):
    """A verb with one answer. `value`: the type of the answer, for msgspec."""

    name: str
    value: type[V_co]


@dataclass(frozen=True)
class StreamingVerb(Generic[I_co, V_co]):
    """A verb that is answered by items, each with or without a blob, and then by a value."""

    name: str
    item: type[I_co]
    value: type[V_co]


def nullable_type(cls: type[V]) -> type[V | None]:
    """Return the type `cls | None`, for a verb whose answer may be null."""
    either: Any = cls | None
    nullable: type[V | None] = either
    return nullable


Outcome = Literal["succeeded", "failed", "killed", "stopped", "gave_up", "lost"]
Phase = Literal["prepared", "started", "committed", "ending", "ended"]
TaskState = Literal["pending", "starting", "running", "ended", "lost"]


class TaskEnding(msgspec.Struct):
    """How one attempt of a task ended, as minders tell each other (see
    shared_state.make_ending)."""

    outcome: Outcome
    time: Seconds | None = None
    ended: Seconds | None = None
    task: TaskName | None = None
    host: Name | None = None
    attempt: Count | None = None
    round: Count | None = None
    final: bool | None = None
    again: bool | None = None
    up: bool | None = None
    exit_code: Number | None = None
    signal: Number | None = None
    reason: Text | None = None


class TaskHealth(msgspec.Struct):
    word: Text
    attempt: Count
    reason: Text
    since: Seconds


class RestartCount(msgspec.Struct):
    attempt: Count
    count: Count
    quick: Count
    delay_s: Seconds
    round: Count | None = None
    how: Text | None = None


class GangRound(msgspec.Struct):
    n: Count
    time: Seconds
    task: TaskName
    count: Count
    quick: Count
    delay_s: Seconds
    reason: Text | None = None


_Lines = Annotated[dict[Line, Line], Meta(max_length=MOST_ROWS)]
_SHOWN: dict[str, Any] = {"run": Name, "task": TaskName, "host": Name}
# {record: {field: the type that a host's value must have}}, for the fields whose type hint allows
# more than hosts may send.
_NARROWER: dict[type[Any], dict[str, Any]] = {
    wire.TaskStatus: {
        **_SHOWN,
        "state": TaskState,
        "outcome": Outcome | None,
        "health": Literal["stalled"] | None,
        "attempt": Count,
        "pid": Count | None,
        "log_bytes": Count,
        "log_lost_bytes": Count,
    },
    wire.HostRunState: {
        **_SHOWN,
        "job": Name,
        "phase": Phase,
        "first_death": TaskEnding | None,
        "ended_tasks": ByTask[TaskEnding],
        "health": ByTask[TaskHealth],
        "restarts": ByTask[RestartCount],
        "round": GangRound | None,
        "admitted": _Lines,
        "not_admitted": _Lines,
        "left_files": Annotated[list[RelativePath], Meta(max_length=MOST_ROWS)],
    },
}
_BOUNDED = {str: Text, int: Number, float: Seconds, bool: bool, type(None): None, Any: Scalar}

# {name: its real value} for the names in the type hints of agent/wire.py. At run time, wire.py
# itself has only stand-ins for the names of `typing`.
_NAMES = {name: getattr(typing, name) for name in typing.__all__ if name in vars(wire)} | vars(
    inner
)


@cache
def checked_type_of(record: type[Any]) -> type[msgspec.Struct]:
    """Return a type with which msgspec checks a record. Every field is required, because agents
    send records whole. Raises KeyError for a class that is not a record of agent/wire.py."""
    narrower = _NARROWER[record]
    fields = [
        (name, narrower.get(name) or _bounded_type(hint))
        for name, hint in get_type_hints(record, localns=_NAMES).items()
    ]
    return msgspec.defstruct(record.__name__, fields)


def _bounded_type(hint: Any) -> Any:
    inner = get_args(hint)
    if get_origin(hint) is list:
        return Annotated[list[_bounded_type(inner[0])], Meta(max_length=MOST_ROWS)]  # type: ignore[misc]
    if get_origin(hint) is dict:
        return Annotated[dict[Text, _bounded_type(inner[1])], Meta(max_length=MOST_ROWS)]  # type: ignore[misc]
    if inner:  # a union, such as an Optional
        return reduce(or_, map(_bounded_type, inner))
    return _BOUNDED[hint]


msgspec_lock = threading.Lock()


def convert(value: Any, cls: type[V]) -> V:
    """Return `value` as an instance of `cls`. Raises msgspec.ValidationError if `value` does not
    fit."""
    with msgspec_lock:
        return msgspec.convert(value, cls)


def decode(text: bytes | str, cls: type[V]) -> V:
    """Return the JSON text as an instance of `cls`. Raises msgspec.ValidationError or
    msgspec.DecodeError."""
    with msgspec_lock:
        return msgspec.json.decode(text, type=cls)


MAX_MESSAGE_CHARS = 300  # the most characters of an error message
# The most memory that one answer may take, as estimated by estimate_memory_bytes.
MOST_WEIGHT_BYTES = 256 << 20
_VALUE_BYTES = 64  # how much memory a small value takes in Python


class InvalidJsonValue(ValueError):
    """A JSON value does not have the type that the reader expects. The message says why."""


def convert_untrusted(value: Any, cls: type[V]) -> V:
    """Return `value` as an instance of `cls`. Raises InvalidJsonValue, and nothing else, if `value`
    does not fit."""
    try:
        with msgspec_lock:
            return msgspec.convert(value, cls, dec_hook=_decode_wire_record)
    except Exception as error:
        raise _as_invalid_value(error) from error


def decode_untrusted(text: bytes, cls: type[V]) -> V:
    """Return JSON text as an instance of `cls`. Raises InvalidJsonValue, and nothing else.
    This is faster than parsing the JSON to plain Python values for `convert_untrusted`."""
    if estimate_memory_bytes(text) > MOST_WEIGHT_BYTES:
        raise InvalidJsonValue(
            f"the value would take more than {MOST_WEIGHT_BYTES >> 20} MiB of memory"
        )
    try:
        with msgspec_lock:
            return msgspec.json.decode(text, type=cls, dec_hook=_decode_wire_record)
    except Exception as error:
        # Agents write a file name that is not UTF-8 with surrogate escapes. msgspec refuses these,
        # so Python's own decoder reads such an answer.
        if type(error) is msgspec.DecodeError and b"\\ud" in text:
            return convert_untrusted(_parse_ascii_json(text), cls)
        raise _as_invalid_value(error) from error


def _as_invalid_value(error: Exception) -> InvalidJsonValue:
    text = (
        str(error)
        if isinstance(error, msgspec.ValidationError)
        else f"{type(error).__name__}: {error}"
    )
    return InvalidJsonValue(text[:MAX_MESSAGE_CHARS])


def estimate_memory_bytes(text: bytes) -> int:
    """Estimate how much memory the JSON needs as Python values, in bytes. A small value needs much
    more memory than its text. So the number of values matters. It is estimated from the number of
    commas and opening brackets."""
    return len(text) + _VALUE_BYTES * (1 + text.count(b",") + text.count(b"[") + text.count(b"{"))


def _parse_ascii_json(text: bytes) -> Any:
    """Parse ASCII-encoded JSON and return plain Python values. Raises InvalidJsonValue."""
    try:
        return _DECODER.decode(text.decode("ascii"))
    except (ValueError, RecursionError) as error:
        raise _as_invalid_value(error) from error


def _refuse_json_constant(constant_name: str) -> float:
    raise ValueError(f"the number {constant_name}")


_DECODER = json.JSONDecoder(parse_constant=_refuse_json_constant)


def _decode_wire_record(cls: type[Any], fields: Any) -> Any:
    """Return an instance of `cls`, a record of agent/wire.py, with these fields. msgspec calls this
    function for every class that it does not know itself."""
    msgspec.convert(fields, checked_type_of(cls))  # type: ignore[arg-type]
    return wire.from_wire(cls, fields)
