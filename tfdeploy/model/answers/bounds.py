"""Define limits of what a host may send: bounded texts, finite numbers, names from allow-lists,
paths without control characters."""

from __future__ import annotations

from typing import Annotated, TypeVar

from msgspec import Meta

V = TypeVar("V")
MOST_TEXT = 1 << 16
MOST_PATHS = 1_000_000
MOST_ROWS = 100_000  # the most rows of one list that a host sends
_PLAIN = r"[^\x00-\x1f\x7f]"

# This text may contain any characters, so only code in `ui` may show it.
Text = Annotated[str, Meta(max_length=MOST_TEXT)]
Line = Annotated[str, Meta(max_length=4096, pattern=rf"\A{_PLAIN}*\Z")]
# agent/serve/call.py has the same pattern.
Name = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}\Z")]
TaskName = Annotated[str, Meta(pattern=r"\A[a-z]{1,32}:[0-9]{1,7}\Z")]
# The text "" stands for "no name", because msgspec allows no union of two string types.
TaskNameOrNone = Annotated[str, Meta(pattern=r"\A([a-z]{1,32}:[0-9]{1,7})?\Z")]
Code = Annotated[str, Meta(pattern=r"\A[a-z_]{1,64}\Z")]
AbsolutePath = Annotated[str, Meta(max_length=4096, pattern=rf"\A/{_PLAIN}*\Z")]
# The caller must check that the path is one that it requested.
RelativePath = Annotated[str, Meta(min_length=1, max_length=4096)]
NameOrNone = Annotated[str, Meta(pattern=r"\A([A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?\Z")]
Digest = Annotated[str, Meta(pattern=r"\A[0-9a-f]{8,128}\Z")]
# the characters that PEP 440 allows
Version = Annotated[str, Meta(pattern=r"\A[0-9A-Za-z][0-9A-Za-z.+!_-]{0,63}\Z")]
# a user's name, which may become part of a command
Account = Annotated[str, Meta(pattern=r"\A[\w.@+$\\-]{1,128}\Z")]
Variable = Annotated[str, Meta(pattern=r"\A[A-Za-z_][A-Za-z0-9_]{0,127}\Z")]

Count = Annotated[int, Meta(ge=0, le=1 << 53)]  # for numbers of bytes and files, and for pids
# for nanoseconds and the free bytes of a disk; msgspec allows no larger bound
BigCount = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
Number = Annotated[int, Meta(ge=-(1 << 53), le=1 << 53)]
Int64 = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
Port = Annotated[int, Meta(ge=1, le=65535)]
# UTC seconds. The limits are in the years 69 and 5138, so datetime can represent each time. NaN and
# infinity are refused.
Seconds = Annotated[float, Meta(ge=-6e10, le=1e11)]

ShortText = Annotated[str, Meta(max_length=64)]  # for ids and digests
ByTask = Annotated[dict[TaskName, V], Meta(max_length=MOST_ROWS)]

Scalar = Text | Int64 | Seconds | bool | None
RelativePaths = Annotated[list[RelativePath], Meta(max_length=MOST_PATHS)]
Names = Annotated[list[Name], Meta(max_length=MOST_ROWS)]
