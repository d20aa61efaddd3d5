"""Makes the JSON Schemas by which an editor checks and completes the job file and the inventory.

A schema allows the values that the readers in `reference.py` accept. The schemas follow draft 7 of
JSON Schema, which editors support best.
"""

from __future__ import annotations

import json

from tfdeploy.config.reference import INVENTORY, JOB
from tfdeploy.config.schema import mapping_schema

_FILES = {
    "job-file": {"title": "the job file of tfdeploy, tfdeploy.yaml", **mapping_schema(JOB)},
    "inventory-file": {
        "title": "an inventory of tfdeploy",
        **mapping_schema(INVENTORY),
        "required": ["hosts"],
    },
}
FILE_SCHEMAS = tuple(_FILES)


def file_schema_text(name: str) -> str:
    """Return the JSON Schema with this name as text. `name`: one of FILE_SCHEMAS. Raises
    KeyError."""
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", **_FILES[name]}
    return json.dumps(schema, indent=1, ensure_ascii=False) + "\n"
