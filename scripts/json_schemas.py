"""Write docs/json/NAME.schema.json for every output that verbs print with --json.

A test compares the files with the output of this script.
"""

from __future__ import annotations

from pathlib import Path

from tfdeploy.model.output.printed import PRINTED, schema_text

FOLDER = Path(__file__).parents[1] / "docs" / "json"


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name in PRINTED:
        (FOLDER / f"{name}.schema.json").write_text(schema_text(name))


if __name__ == "__main__":
    main()
