"""Run `tfdeploy fetch --keep --onto HOST`: copy the newest `keep` folders of a job to a host."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdeploy.cli.fleet import lock_holder
from tfdeploy.cli.messages import print_unselected_hosts
from tfdeploy.cli.output import print_json, print_message
from tfdeploy.cli.project import load_job, load_whole_and_selected_inventory
from tfdeploy.cli.views import open_transfer
from tfdeploy.operations.fetch_onto import copy_newest_keep_to

if TYPE_CHECKING:
    from tfdeploy.cli.arguments.fetch import Flags
    from tfdeploy.model.output.printed import OntoAnswer


def copy_keep_onto(flags: Flags, host: str) -> int:
    """Copy the newest `keep` folders of the job to `host`, and return the exit code.

    Both the job file and the inventory must exist, as for a launch.
    """
    job = load_job(flags)
    whole, inventory = load_whole_and_selected_inventory(flags, job)
    unselected_host_names = [each.name for each in whole.hosts if each not in inventory.hosts]
    with open_transfer(flags, flags.bwlimit) as (fleet, emit):
        kept = copy_newest_keep_to(fleet, inventory, job, host, lock_holder(), emit)
    print_unselected_hosts(flags, unselected_host_names)
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
        which = " of the hosts that were asked" if unselected_host_names else ""
        outcome = (
            f"{host} already has the newest content of the `keep` folders{which}"
            if kept.host == host
            else f"the `keep` folders of {kept.host} are now on {host} too"
        )
        use = f"a launch with the chief (without a chief: worker:0) on {host} uses these folders"
        print_message(f"{outcome} ({kept.description}): {use}")
    return 0
