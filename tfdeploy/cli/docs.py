"""`tfdeploy docs`: the reference of the two files, printed from the tables that validation reads; or a JSON Schema."""

from __future__ import annotations

import json

from tfdeploy.cli.arguments.docs import Flags
from tfdeploy.config.reference import reference_rows, reference_text
from tfdeploy.errors import UsageError


def run(flags: Flags) -> int:
    if flags.schema is not None:
        return _schema(flags.schema)

    print(json.dumps(reference_rows()) if flags.json else reference_text(), end="\n" if flags.json else "")
    return 0


def _schema(name: str) -> int:
    from tfdeploy.model.printed import PRINTED, schema_text

    if name not in PRINTED:
        raise UsageError(f"nothing is printed as {name!r}", where="--schema", next=f"one of {', '.join(PRINTED)}")
    print(schema_text(name), end="")
    return 0
