"""Define what a host reports about its versions and paths (`Hello`), its clock, the lock of a job,
the environments of `setup`, and TensorBoard. The facts of `probe` are in model/facts.py."""

from __future__ import annotations

from typing import Annotated, Literal, TypedDict

from msgspec import Meta

from tfdeploy.text.typed import (
    AbsolutePath,
    Answer,
    Count,
    EmptyAnswer,
    Line,
    Name,
    Number,
    Port,
    Seconds,
    StreamingVerb,
    Text,
    Verb,
    Version,
)


class Hello(Answer):
    """The first frame of a session: see agent/serve/server.py."""

    version: Line
    agent: Line
    home: Line
    user: Line
    workdir: AbsolutePath
    boot_id: Line
    hostname: Line
    python: Line
    python_version: Line
    clock: Seconds  # UTC seconds by the host's clock
    ssh_connection: Line | None
    pid: Count


class Clock(Answer):
    """`clock`: UTC seconds."""

    clock: Seconds


class LockHolder(TypedDict):
    """Who acquires a lock. Other operators see this while the lock is held."""

    user: str
    machine: str
    pid: int
    time: float  # UTC seconds


class LockAcquired(Answer):
    """`fence`: a number that grows with each lock of the job. Verbs that change the job's files
    check this number, so that they refuse a late holder of an older lock."""

    held: bool
    fence: Count


PING = Verb("ping", Clock)
LOCK = Verb("lock", LockAcquired)
UNLOCK = Verb("unlock", EmptyAnswer)


# Package names (PEP 503) and versions are written into files that pip or uv reads on other hosts,
# so their characters are limited.
Package = Annotated[str, Meta(max_length=128, pattern=r"\A[a-z0-9]([a-z0-9-]*[a-z0-9])?\Z")]
Installed = Annotated[  # a version as PEP 440 defines it
    str,
    Meta(
        max_length=128,
        pattern=r"(?ai)\Av?(\d+!)?\d+(\.\d+)*([-_.]?(a|b|c|rc|alpha|beta|pre|preview)[-_.]?\d*)?"
        r"(-\d+|[-_.]?(post|rev"
        r"|r)[-_.]?\d*)?([-_.]?dev[-_.]?\d*)?(\+[a-z0-9]+([-_.][a-z0-9]+)*)?\Z",
    ),
]


class EnvState(Answer):
    """`by`: the program that made the environment, or null until the environment is ready."""

    name: Name
    folder: AbsolutePath
    python: AbsolutePath
    python_version: Version
    ready: bool
    by: Literal["uv", "pip"] | None
    packages: Annotated[dict[Package, Installed], Meta(max_length=10_000)]


class EnvProgress(Answer):
    """`line`: a line of uv's or pip's output. `waiting`: the path of the lock that another setup of
    this environment holds, if this setup waits for the lock."""

    line: Text | None = None
    waiting: Text | None = None


class TensorBoardStarted(Answer):
    """`path`: TensorBoard answers only below this path, which becomes part of a URL."""

    port: Port
    path: Annotated[str, Meta(pattern=r"\A/[0-9a-f]{32}\Z")]


class TensorBoardEnded(Answer):
    """`code`: the exit code of TensorBoard, or null. `said`: the end of its output."""

    code: Number | None
    said: Text


ENV_STATE = Verb("env.state", EnvState)
ENV_MAKE = StreamingVerb("env.make", EnvProgress, EnvState)
TENSORBOARD = StreamingVerb("tensorboard", TensorBoardStarted, TensorBoardEnded)
