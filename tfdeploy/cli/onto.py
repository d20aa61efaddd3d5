"""`tfdeploy fetch --keep --onto HOST`: options to values, one operation, one answer."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tfdeploy.cli.flags import CommonFlags
    from tfdeploy.model.printed import OntoAnswer


def onto(flags: CommonFlags, host: str) -> int:
    """Copies the newest keep to `host`. Needs the job file and the inventory, as launch does."""
    from tfdeploy.cli import context
    from tfdeploy.cli.views import transfer_view
    from tfdeploy.model.selection import select
    from tfdeploy.operations.emit import notices_to
    from tfdeploy.operations.fetch_onto import copy_onto

    job = context.load_job(flags)
    whole = context.whole_inventory(flags, job)
    inventory = select(whole, flags.limit, flags.exclude)
    unasked = [each.name for each in whole.hosts if each not in inventory.hosts]
    holder = context.holder().as_json(time.time())
    with context.open_fleet(flags) as fleet, transfer_view(flags) as emit:
        fleet.on_notice = notices_to(emit)
        kept = copy_onto(fleet, inventory, job, host, holder, emit)
    context.show_unasked(flags, unasked)
    if flags.json:
        answer: OntoAnswer = {"job": job.name, "ok": True, "keep_from": kept.host, "onto": host, "keep": kept.description}
        print(json.dumps(answer))
    elif not flags.quiet:
        of = " of the hosts that were asked" if unasked else ""
        there = f"{host} holds the newest keep{of} already" if kept.host == host else f"keep of {kept.host} is on {host}"
        print(f"{there} ({kept.description}): a launch with its deciding task there goes on from it", file=sys.stderr)
    return 0
