"""Types of texts in what verbs print with --json: plain texts here, and in the JSON Schemas what
they can be."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from tfdeploy.agent.wire import OUTCOMES, RUN_STATES, TASK_STATES

# RFC 3339, UTC: as words.iso_z writes it
IsoTime = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
RunState = Annotated[str, Meta(extra_json_schema={"enum": list(RUN_STATES)})]
TaskState = Annotated[str, Meta(extra_json_schema={"enum": list(TASK_STATES)})]
Outcome = Annotated[str, Meta(extra_json_schema={"enum": list(OUTCOMES)})]
Health = Annotated[str, Meta(extra_json_schema={"enum": ["unreachable", "stalled"]})]
