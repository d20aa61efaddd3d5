"""Write the JSON Schemas of the docs: docs/json/NAME.schema.json for every output that verbs print
with --json, and docs/schemas/NAME.schema.json for the job file and the inventory.

Tests compare the files with the output of this script.
"""

from __future__ import annotations

from pathlib import Path

from tfdeploy.config.file_schemas import FILE_SCHEMAS, file_schema_text
from tfdeploy.model.output.printed import PRINTED, schema_text

DOCS = Path(__file__).parents[1] / "docs"


def main() -> None:
    texts = {f"json/{name}": schema_text(name) for name in PRINTED}
    texts |= {f"schemas/{name}": file_schema_text(name) for name in FILE_SCHEMAS}
    for name, text in texts.items():
        path = DOCS / f"{name}.schema.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
