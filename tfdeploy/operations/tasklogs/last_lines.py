"""The last lines of one task, for an error."""

from __future__ import annotations

from tfdeploy.model.loglines import more_bytes
from tfdeploy.model.plan import Plan
from tfdeploy.operations.tasklogs.stored_lines import stored_lines
from tfdeploy.operations.tasklogs.task_log import PIECE_S, LogQuery
from tfdeploy.transport.protocols import Fleet

LINES = 12
LINE_CHARS = 300


def last_lines(fleet: Fleet, plan: Plan, task: str) -> list[str]:
    """At most 12 lines, decoded but not sanitised; [] where the host gives no answer."""
    query = LogQuery(tasks=(task,), last=LINES, within_s=PIECE_S)
    return [_cut(line.line.decode("utf-8", "replace")) for line in stored_lines(fleet, plan, query, {})]


def _cut(line: str) -> str:
    rest = line[LINE_CHARS:].encode("utf-8", "replace")
    return line[:LINE_CHARS] + more_bytes(len(rest)) if rest else line
