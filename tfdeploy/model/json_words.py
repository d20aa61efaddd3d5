"""Define the types of texts that verbs print with --json. In Python they are plain strings; a JSON
Schema lists their allowed values or their format."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from tfdeploy.agent.wire import OUTCOMES, RUN_STATES, TASK_STATES

# RFC 3339 in UTC, as words.iso_z returns it
IsoTime = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
RunState = Annotated[str, Meta(extra_json_schema={"enum": list(RUN_STATES)})]
TaskState = Annotated[str, Meta(extra_json_schema={"enum": list(TASK_STATES)})]
Outcome = Annotated[str, Meta(extra_json_schema={"enum": list(OUTCOMES)})]
Health = Annotated[str, Meta(extra_json_schema={"enum": ["unreachable", "stalled"]})]
