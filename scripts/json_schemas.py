"""Write the JSON Schemas in the documentation.

docs/json/NAME.schema.json describes an output that verbs print with --json. The schemas of the job
file and of the inventory are docs/schemas/NAME.schema.json.

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
