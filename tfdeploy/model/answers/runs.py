"""Define answers about runs: their state on one host, how they end on that host, and their logs."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from tfdeploy.agent.wire import MAX_KNOWN_BYTES, HostRunState, TaskStatus
from tfdeploy.model.answers.samples import Attempts, NewestSamples
from tfdeploy.text.typed import (
    MOST_ROWS,
    Answer,
    Count,
    EmptyAnswer,
    Line,
    Name,
    Names,
    Seconds,
    StreamingVerb,
    TaskName,
    TaskNameOrNone,
    Text,
    Verb,
)

Tasks = Annotated[list[TaskStatus], Meta(max_length=10_000)]


class RunPrepared(Answer):
    prepared: bool


class Survivor(Answer):
    pid: Count
    state: Line
    command: Text


Survivors = Annotated[list[Survivor], Meta(max_length=10_000)]


class RunAborted(Answer):
    """`survivors`: processes of the run that are still alive; empty if the host does not know the
    run."""

    survivors: Survivors = []


class RunEnded(Answer):
    """`messenger`: whether the run's minder (the process that supervises the run's tasks on the
    host) stays alive, to inform the hosts that do not answer now. `had_ended`: whether the run had
    ended on this host before."""

    survivors: Survivors
    seconds: Seconds
    messenger: bool
    had_ended: bool = False


class RunResumed(Answer):
    """`resumed`: true if the call has started a new minder (the process that supervises the run's
    tasks on the host); false if the run has a living minder already."""

    resumed: bool


class KnownRunEnd(Answer):
    """`known`: why the run is over, as JSON that another host can read. null: this host does not
    know that the run is over."""

    known: Annotated[str, Meta(max_length=MAX_KNOWN_BYTES)] | None


class UnreachablePort(Answer):
    """A port of another host that this host cannot reach. `task`: "" for the port of the mesh."""

    host: Name
    task: TaskNameOrNone
    address: Line
    why: Line


class UnreachablePorts(Answer):
    """`asked`: the hosts whose ports were tried. `shut`: the ports that this host cannot reach, or
    at which a wrong host or program answers."""

    asked: Names
    shut: Annotated[list[UnreachablePort], Meta(max_length=MOST_ROWS)]


class RunOnHost(Answer, kw_only=True):
    """The state of a run on one host. `committed`: true if the launch has confirmed the start
    of the run, which then continues without the launch. `left`: true if the run has lost its
    processes: it is committed and has not ended, but no minder (the process that supervises the
    run's tasks on the host) is alive."""

    host_state: HostRunState
    tasks: Tasks
    live: bool
    left: bool
    committed: bool = True  # the default is for older agents, which do not send this field
    samples: NewestSamples | None = None


class ListedRun(RunOnHost, kw_only=True):
    """`damaged`: why the files of the run cannot be read. Then nothing else is known about the
    run."""

    run: Name
    job: Name
    damaged: Text | None = None


class RunChange(Answer):
    """One change. Exactly one of `host_state`, `task` and `samples` is set. `attempts`: the ended
    attempts of this task that no earlier change has reported."""

    host_state: HostRunState | None = None
    task: TaskStatus | None = None
    attempts: Attempts = []
    samples: NewestSamples | None = None


# One record of a log: (offset in the blob, UTC seconds, stream, attempt).
Record = tuple[Count, Seconds, Annotated[int, Meta(ge=0, le=1)], Count]


class LogPiece(Answer):
    """`records`: a list of [offset in the blob, time by the run's clock, stream 0 or 1, attempt].
    `gone`: bytes that were rotated away before they could be read."""

    task: TaskName
    offset: Count
    records: Annotated[list[Record], Meta(max_length=1 << 18)]
    gone: Count = 0


Offsets = Annotated[dict[TaskName, Count], Meta(max_length=10_000)]


class LogEnd(Answer):
    """`ended`: whether every task has ended and its whole log is sent. `left`: as in RunOnHost.
    `cursors`: the offset up to which each log was sent. `ends`: the offset at which each log ended
    at the time of the request."""

    ended: bool
    left: bool
    cursors: Offsets = {}
    ends: Offsets = {}


RUN_PREPARE = Verb("run.prepare", RunPrepared)
RUN_LINKS = Verb("run.links", UnreachablePorts)
RUN_RENEW = Verb("run.renew", EmptyAnswer)
RUN_START = Verb("run.start", EmptyAnswer)
RUN_COMMIT = Verb("run.commit", EmptyAnswer)
RUN_ABORT = Verb("run.abort", RunAborted)
RUN_STOP = Verb("run.stop", RunEnded)
RUN_RESUME = Verb("run.resume", RunResumed)
RUN_STATUS = Verb("run.status", RunOnHost)
RUN_KNOWN = Verb("run.known", KnownRunEnd)
RUN_TELL = Verb("run.tell", EmptyAnswer)
# The answer's item has no fields: the plan is the item's blob, which
# operations/run_lookup/host_plans.py reads.
RUN_PLAN = StreamingVerb("run.plan", EmptyAnswer, EmptyAnswer)
RUNS = Verb("runs", list[ListedRun])
RUN_WATCH = StreamingVerb("run.watch", RunChange, EmptyAnswer)
LOGS = StreamingVerb("logs", LogPiece, LogEnd)
