"""Run `tfdeploy docs`: print the reference of the job file and the inventory, or a JSON Schema.

The reference is made from the tables that also validate the two files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdeploy.cli.arguments.docs import Flags
from tfdeploy.cli.options import unknown_choice_error
from tfdeploy.cli.output import print_json
from tfdeploy.config.reference import reference_rows, reference_sections, sections_text

if TYPE_CHECKING:
    from tfdeploy.model.output.printed import TopicAnswer


def run(flags: Flags) -> int:
    if flags.schema is not None:
        return _print_schema(flags.schema)
    if flags.topic is not None:
        return _print_topic(flags, flags.topic)
    if flags.json:
        print_json(reference_rows())
    else:
        sections = reference_sections()
        print(sections_text(sections["inventory"] + sections["job"]), end="")
    return 0


def _print_topic(flags: Flags, topic: str) -> int:
    from tfdeploy.cli.topics import topic_sections

    sections = topic_sections(topic)
    if flags.json:
        answer: TopicAnswer = {"topic": topic, "sections": sections}
        print_json(answer)
    else:
        longest = max(len(row["key"]) for each in sections for row in each["rows"])
        print(sections_text(sections, longest + 1), end="")
    return 0


def _print_schema(name: str) -> int:
    from tfdeploy.config.file_schemas import FILE_SCHEMAS, file_schema_text
    from tfdeploy.model.output.printed import PRINTED, schema_text

    if name not in (*FILE_SCHEMAS, *PRINTED):
        raise unknown_choice_error(name, [*PRINTED, *FILE_SCHEMAS], "--schema")
    print(file_schema_text(name) if name in FILE_SCHEMAS else schema_text(name), end="")
    return 0
