"""`tfdeploy check`: preflight of every host and between every pair of hosts."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from tfdeploy.cli.arguments.check import Flags
from tfdeploy.cli.fleet import lock_holder, open_fleet, operator
from tfdeploy.cli.output import print_json
from tfdeploy.cli.project import job_here, whole_inventory
from tfdeploy.cli.state import tree_cache
from tfdeploy.cli.views import plain_view
from tfdeploy.model.output.check import host_rows, link_rows
from tfdeploy.model.selection import select
from tfdeploy.operations.check import check
from tfdeploy.operations.emit import notices_to
from tfdeploy.operations.launch import Launch
from tfdeploy.planning.options import Options
from tfdeploy.ui.checks import show_checks

if TYPE_CHECKING:
    from tfdeploy.model.inventory import Inventory
    from tfdeploy.model.job import Job
    from tfdeploy.model.output.printed import CheckAnswer


def run(flags: Flags) -> int:
    job = job_here(flags)
    known = whole_inventory(flags, job)
    inventory = select(known, flags.limit, flags.exclude)
    launch = _launch_of(job, inventory, known) if job else None
    with open_fleet(flags) as fleet:
        view = plain_view(flags)
        fleet.on_notice = notices_to(view)
        found = check(inventory.hosts, launch, fleet, view, deep=flags.deep)
    hosts, links = host_rows(found), link_rows(found)
    if flags.json:
        answer: CheckAnswer = {"ok": found.ok, "hosts": hosts, "links": links}
        print_json(answer)
    else:
        _show(flags, hosts, links)
    return found.exit_code


def _launch_of(job: Job, inventory: Inventory, known: Inventory) -> Launch:
    """The launch whose plan says which ports and how many tasks each host will have; it is never
    made."""
    options = Options(allow_public=True, allow_open=True)  # a check reports what a launch refuses
    by = (time.time(), operator(), lock_holder())
    return Launch(inventory, job, "check", *by, options, cache=tree_cache(), known=known.hosts)


def _show(flags: Flags, hosts: list[Any], links: list[Any]) -> None:
    for host in hosts:
        for each in host["checks"]:
            each["fix"] = flags.typed(each["fix"]) if each["fix"] else None
    for link in links:
        link["fix"] = flags.typed(link["fix"]) if link["fix"] else None
    show_checks(flags.out, hosts, links, quiet=flags.quiet)
