"""`tfdeploy fetch --keep --onto HOST`: options to values, one operation, one answer."""

from __future__ import annotations

import argparse
import json
import sys
import time


def onto(args: argparse.Namespace) -> int:
    """Needs the job file and the inventory, as launch does. Raises UsageError where other parts than keep are asked for."""
    from tfdeploy.cli import setting
    from tfdeploy.cli.views import transfer_view
    from tfdeploy.errors import UsageError
    from tfdeploy.operations.onto import copy_onto

    if args.parts not in (None, ["keep"]) or args.to or args.wanted or args.overwrite:
        raise UsageError(
            "--onto copies the newest keep of the job, and nothing else",
            where="tfdeploy fetch",
            next=f"tfdeploy fetch --keep --onto {args.onto}",
        )
    job = setting.load_job(args)
    inventory = setting.load_inventory(args, job)
    holder = setting.holder().as_json(time.time())
    with setting.open_fleet(args) as fleet, transfer_view(args) as emit:
        kept = copy_onto(fleet, inventory, job, args.onto, holder, emit)
    if args.json:
        print(json.dumps({"job": job.name, "ok": True, "keep_from": kept.host, "onto": args.onto, "keep": kept.words}))
    elif not args.quiet:
        there = (
            f"{args.onto} holds the newest keep already" if kept.host == args.onto else f"keep of {kept.host} is on {args.onto}"
        )
        print(f"{there} ({kept.words}): a launch with its deciding task there goes on from it", file=sys.stderr)
    return 0
