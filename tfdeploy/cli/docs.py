"""`tfdeploy docs`: the reference of the two files, printed from the tables that validation reads."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tfdeploy.cli.flags import CommonFlags, finish_parser


@dataclass(frozen=True, kw_only=True)
class Flags(CommonFlags):
    unbounded = "it asks no host"


def add(subparsers: Any) -> None:
    text = "the reference of the two files"
    parser = subparsers.add_parser("docs", help=text, description="The keys of inventory and job file, and the placeholders.")
    finish_parser(parser, Flags, run)


def run(flags: Flags) -> int:
    from tfdeploy.config.reference import reference_rows, reference_text

    print(json.dumps(reference_rows()) if flags.json else reference_text(), end="\n" if flags.json else "")
    return 0
