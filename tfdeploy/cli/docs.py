"""`tfdeploy docs`: the reference of the two files, printed from what validation reads."""

from __future__ import annotations

import argparse
import json
from typing import Any

from tfdeploy.cli.options import common


def add(subparsers: Any) -> None:
    text = "the reference of the two files"
    parser = subparsers.add_parser("docs", help=text, description="The keys of inventory and job file, and the placeholders.")
    common(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from tfdeploy.config.reference import reference_rows, reference_text

    print(json.dumps(reference_rows()) if args.json else reference_text(), end="\n" if args.json else "")
    return 0
