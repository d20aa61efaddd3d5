"""Build, for each record in agent/wire.py, a type that checks such a record. The type has the
record's fields, with limits and allowed values.

The records themselves have no checks, because every process of the agent loads them.
"""

from __future__ import annotations

import typing
from functools import cache, reduce
from operator import or_
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from tfdeploy.agent import shapes as inner
from tfdeploy.agent import wire
from tfdeploy.model.answers.bounds import (
    MOST_ROWS,
    ByTask,
    Count,
    Line,
    Name,
    Number,
    RelativePath,
    Scalar,
    Seconds,
    TaskName,
    Text,
)

Outcome = Literal["succeeded", "failed", "killed", "stopped", "gave_up", "lost"]
Phase = Literal["prepared", "started", "committed", "ending", "ended"]
TaskState = Literal["pending", "starting", "running", "ended", "lost"]


class TaskEnding(msgspec.Struct):
    """How one attempt of a task ended, as minders send it to each other:
    shared_state.make_ending."""

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
_NARROWER: dict[type[Any], dict[str, Any]] = {  # record -> field -> its allowed type
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

# The type hints of the records in agent/wire.py contain names of `typing`. At run time, wire.py has
# only stand-ins for these names. So the hints are resolved with the real names from this table.
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
