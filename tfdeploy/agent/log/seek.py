"""Find the offset in a task's log at which the last lines begin, or the lines since a given time.
The search runs backwards or is binary, so it never reads the whole log."""

from __future__ import annotations

import os

from tfdeploy.agent.annotations import List
from tfdeploy.agent.log.reader import OpenSegments, Segment

_BLOCK_BYTES = 256 << 10
# A line may be endless. So the search for the last N lines reads at most _LEAST_BYTES + N *
# _LINE_BYTES bytes.
_LEAST_BYTES = 8 << 20
_LINE_BYTES = 4 << 10


def last_lines_offset(task_dir: str, line_count: int) -> int:
    """Return the offset at which the last `line_count` lines of the log begin. Lines may be
    endless, so only the end of the log is searched: about 8 MiB, plus 4 KiB for each line. If this
    end has fewer lines, return the offset at which it begins."""
    with OpenSegments(task_dir) as segments:
        return _last_lines_offset(segments, line_count)


def _last_lines_offset(segments: List[Segment], line_count: int) -> int:
    end = segments[-1].end if segments else 0
    if line_count <= 0:
        return end
    missing, floor = line_count, end - _LEAST_BYTES - line_count * _LINE_BYTES
    last_byte = end - 1  # not searched, because a newline here only ends the last line
    for segment in reversed(segments):
        at = min(segment.end, last_byte)
        while at > segment.base:
            begin = max(segment.base, at - _BLOCK_BYTES)
            block = os.pread(segment.log, at - begin, begin - segment.base)
            newlines = block.count(b"\n")
            if newlines >= missing:
                return begin + _nth_last_newline(block, missing) + 1
            missing, at = missing - newlines, begin
            if at <= floor:
                return at
    return segments[0].base if segments else 0


def _nth_last_newline(block: bytes, count: int) -> int:
    at = len(block)
    for _ in range(count):
        at = block.rindex(b"\n", 0, at)
    return at


def first_offset_since(task_dir: str, since: float) -> int:
    """Return the offset of the first line of which at least a part was written at or after `since`
    (UTC seconds of this host's clock)."""
    with OpenSegments(task_dir) as segments:
        for segment in segments:
            position = segment.count_records(lambda record: record.time < since)
            if position < segment.count:
                return _line_start(segment, segment.record(position).offset)
        return segments[-1].end if segments else 0


def _line_start(segment: Segment, offset: int) -> int:
    """Return the offset at which the line that contains `offset` begins. If the line begins more
    than _BLOCK_BYTES before `offset`, return `offset` - _BLOCK_BYTES."""
    begin = max(segment.base, offset - _BLOCK_BYTES)
    block = os.pread(segment.log, offset - begin, begin - segment.base)
    return begin + block.rfind(b"\n") + 1
