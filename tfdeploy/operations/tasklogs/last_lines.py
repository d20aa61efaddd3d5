"""Read the last lines of one task, for an error message."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tfdeploy.errors import TfdeployError
from tfdeploy.model.loglines import format_more_bytes
from tfdeploy.model.plan import Plan
from tfdeploy.operations.tasklogs.fetched_logs import FetchedLogs
from tfdeploy.operations.tasklogs.stored_lines import stored_lines
from tfdeploy.operations.tasklogs.task_log import PIECE_S, LogQuery
from tfdeploy.transport.protocols import Fleet

LINES = 12
LINE_CHARS = 300  # a line with more characters is cut


def last_lines(
    fleet: Fleet,
    plan: Plan,
    task: str,
    line_count: int = LINES,
    fetched: FetchedLogs | None = None,
    host_errors: Mapping[str, TfdeployError] = MappingProxyType({}),
) -> list[str]:
    """Return the last `line_count` lines of the task, each cut to LINE_CHARS characters.

    The lines are decoded, but control characters are not removed. If the task's host is in
    `host_errors`, it is not asked. Returns [] if the host does not answer and `fetched` has no log
    of the task.
    """
    query = LogQuery(tasks=(task,), last=line_count, within_s=PIECE_S)
    lines = stored_lines(fleet, plan, query, dict(host_errors), fetched)
    return [_shorten(line.line.decode("utf-8", "replace")) for line in lines]


def _shorten(line: str) -> str:
    omitted = line[LINE_CHARS:].encode("utf-8", "replace")
    return line[:LINE_CHARS] + format_more_bytes(len(omitted)) if omitted else line
