"""Run `tfdeploy docs`: print the reference of the job file and the inventory, or a JSON Schema.

The reference is made from the tables that also validate the two files.
"""

from __future__ import annotations

from tfdeploy.cli.arguments.docs import Flags
from tfdeploy.cli.options import unknown_choice_error
from tfdeploy.cli.output import print_json
from tfdeploy.config.reference import reference_rows, reference_text


def run(flags: Flags) -> int:
    if flags.schema is not None:
        return _print_schema(flags.schema)
    if flags.json:
        print_json(reference_rows())
    else:
        print(reference_text(), end="")
    return 0


def _print_schema(name: str) -> int:
    from tfdeploy.config.file_schemas import FILE_SCHEMAS, file_schema_text
    from tfdeploy.model.output.printed import PRINTED, schema_text

    if name not in (*FILE_SCHEMAS, *PRINTED):
        raise unknown_choice_error(name, [*PRINTED, *FILE_SCHEMAS], "--schema")
    print(file_schema_text(name) if name in FILE_SCHEMAS else schema_text(name), end="")
    return 0
