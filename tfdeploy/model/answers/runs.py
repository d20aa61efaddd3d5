"""Answers about runs: how they stand on one host, how they end there, and their logs."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from tfdeploy.agent.wire import MAX_KNOWN_BYTES, HostRunState, TaskStatus
from tfdeploy.model.answers.bounds import MOST_ROWS, Count, Line, Name, Names, Seconds, TaskName, TaskNameOrNone, Text
from tfdeploy.model.answers.verb import Answer, Flow, Nothing, Verb

Tasks = Annotated[list[TaskStatus], Meta(max_length=10_000)]


class Prepared(Answer):
    prepared: bool


class Survivor(Answer):
    pid: Count
    state: Line
    command: Text


Survivors = Annotated[list[Survivor], Meta(max_length=10_000)]


class Aborted(Answer):
    """Empty where the host does not know the run."""

    survivors: Survivors = msgspec.field(default_factory=list)


class Ended(Answer):
    """Of run.stop. `messenger`: its minder stays to tell the hosts that are away."""

    survivors: Survivors
    seconds: Seconds
    messenger: bool


class Resumed(Answer):
    resumed: bool


class KnownEnd(Answer):
    """JSON of why the run is over, for another host to read; null: it goes on as far as this one knows."""

    known: Annotated[str, Meta(max_length=MAX_KNOWN_BYTES)] | None


class ShutPort(Answer):
    """`task`: "" for the mesh's port."""

    host: Name
    task: TaskNameOrNone
    address: Line
    why: Line


class Links(Answer):
    asked: Names
    shut: Annotated[list[ShutPort], Meta(max_length=MOST_ROWS)]


class Standing(Answer, kw_only=True):
    """How a run stands on one host. `left`: committed, not ended, and nobody minds it."""

    host_state: HostRunState
    tasks: Tasks
    live: bool
    left: bool
    committed: bool = True  # an older agent does not say


class KnownHere(Standing, kw_only=True):
    """`damaged`: what is wrong with the files of a run that cannot be read; nothing else of it is known."""

    run: Name
    job: Name
    damaged: Text | None = None


class News(Answer):
    """One of both: what changed."""

    host_state: HostRunState | None = None
    task: TaskStatus | None = None


Record = tuple[Count, Seconds, Annotated[int, Meta(ge=0, le=1)], Count]  # offset in the blob, UTC, stream, attempt


class LogPiece(Answer):
    """`gone`: bytes that were rotated away before they could be read."""

    task: TaskName
    offset: Count
    records: Annotated[list[Record], Meta(max_length=1 << 18)]
    gone: Count = 0


Offsets = Annotated[dict[TaskName, Count], Meta(max_length=10_000)]


class LogEnd(Answer):
    """`ended`: all has ended and is sent; `left`: as in Standing; `ends`: where each log ended when it was asked for."""

    ended: bool
    left: bool
    cursors: Offsets = msgspec.field(default_factory=dict)
    ends: Offsets = msgspec.field(default_factory=dict)


RUN_PREPARE = Verb("run.prepare", Prepared, fenced=True)
RUN_LINKS = Verb("run.links", Links)
RUN_RENEW = Verb("run.renew", Nothing)
RUN_START = Verb("run.start", Nothing)
RUN_COMMIT = Verb("run.commit", Nothing)
RUN_ABORT = Verb("run.abort", Aborted)
RUN_STOP = Verb("run.stop", Ended)
RUN_RESUME = Verb("run.resume", Resumed)
RUN_STATUS = Verb("run.status", Standing)
RUN_KNOWN = Verb("run.known", KnownEnd)
RUN_TELL = Verb("run.tell", Nothing)
RUN_PLAN = Flow("run.plan", Nothing, Nothing)  # operations/host_plans.py reads the item's blob
RUNS = Verb("runs", list[KnownHere])
RUN_WATCH = Flow("run.watch", News, Nothing)
LOGS = Flow("logs", LogPiece, LogEnd)
