"""`tfdeploy fetch --keep --onto HOST`: options to values, one operation, one answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdeploy.cli.fleet import lock_holder
from tfdeploy.cli.messages import show_unasked
from tfdeploy.cli.output import print_json, say
from tfdeploy.cli.project import load_job, whole_inventory
from tfdeploy.cli.views import transferring
from tfdeploy.model.selection import select
from tfdeploy.operations.fetch_onto import copy_onto

if TYPE_CHECKING:
    from tfdeploy.cli.arguments.fetch import Flags
    from tfdeploy.model.output.printed import OntoAnswer


def onto(flags: Flags, host: str) -> int:
    """Copies the newest keep to `host`. Needs the job file and the inventory, as launch does."""
    job = load_job(flags)
    whole = whole_inventory(flags, job)
    inventory = select(whole, flags.limit, flags.exclude)
    unasked = [each.name for each in whole.hosts if each not in inventory.hosts]
    with transferring(flags, flags.bwlimit) as (fleet, emit):
        kept = copy_onto(fleet, inventory, job, host, lock_holder(), emit)
    show_unasked(flags, unasked)
    if flags.json:
        answer: OntoAnswer = {
            "job": job.name,
            "ok": True,
            "keep_from": kept.host,
            "onto": host,
            "keep": kept.description,
        }
        print_json(answer)
    elif not flags.quiet:
        of = " of the hosts that were asked" if unasked else ""
        there = (
            f"{host} holds the newest keep{of} already"
            if kept.host == host
            else f"keep of {kept.host} is on {host}"
        )
        say(f"{there} ({kept.description}): a launch with its deciding task there goes on from it")
    return 0
