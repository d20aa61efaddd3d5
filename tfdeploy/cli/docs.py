"""`tfdeploy docs`: the reference of the two files, printed from the tables that validation reads; or a JSON Schema."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tfdeploy.cli.flags import CommonFlags, finish_parser


@dataclass(frozen=True, kw_only=True)
class Flags(CommonFlags):
    unbounded = "it asks no host"
    schema: str | None = None


def add(subparsers: Any) -> None:
    text = "the reference of the two files"
    parser = subparsers.add_parser("docs", help=text, description="The keys of inventory and job file, and the placeholders.")
    what = "the JSON Schema of what a verb prints with --json, such as status, sync-dry-run, error"
    parser.add_argument("--schema", metavar="NAME", help=what)
    finish_parser(parser, Flags, run)


def run(flags: Flags) -> int:
    if flags.schema is not None:
        return _schema(flags.schema)
    from tfdeploy.config.reference import reference_rows, reference_text

    print(json.dumps(reference_rows()) if flags.json else reference_text(), end="\n" if flags.json else "")
    return 0


def _schema(name: str) -> int:
    from tfdeploy.errors import UsageError
    from tfdeploy.model.printed import PRINTED, schema_text

    if name not in PRINTED:
        raise UsageError(f"nothing is printed as {name!r}", where="--schema", next=f"one of {', '.join(PRINTED)}")
    print(schema_text(name), end="")
    return 0
