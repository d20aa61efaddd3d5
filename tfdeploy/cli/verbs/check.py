"""Run `tfdeploy check`: test every host, and the connections between each pair of hosts."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tfdeploy.cli.arguments.check import Flags
from tfdeploy.cli.fleet import lock_holder, open_fleet, operator_name
from tfdeploy.cli.output import print_json
from tfdeploy.cli.project import adapt_advice, load_job_if_any, load_whole_and_selected_inventory
from tfdeploy.cli.state import tree_cache_folder
from tfdeploy.cli.views import make_plain_view
from tfdeploy.model.output.check import host_rows, link_rows
from tfdeploy.operations.check import check
from tfdeploy.operations.emit import make_wait_warner
from tfdeploy.operations.launch import LaunchRequest
from tfdeploy.planning.options import Options
from tfdeploy.ui.checks import show_check_problems

if TYPE_CHECKING:
    from tfdeploy.model.inventory import Inventory
    from tfdeploy.model.job import Job
    from tfdeploy.model.output.printed import CheckAnswer
    from tfdeploy.model.output.rows import CheckedHostRow, LinkRow


def run(flags: Flags) -> int:
    job = load_job_if_any(flags)
    whole, inventory = load_whole_and_selected_inventory(flags, job)
    launch = _make_planning_request(job, inventory, whole) if job else None
    with open_fleet(flags) as fleet:
        view = make_plain_view(flags)
        fleet.on_notice = make_wait_warner(view)
        result = check(inventory.hosts, launch, fleet, view, deep=flags.deep)
    hosts, links = host_rows(result), link_rows(result)
    if flags.json:
        answer: CheckAnswer = {"ok": result.ok, "hosts": hosts, "links": links}
        print_json(answer)
    else:
        _show_checks(flags, hosts, links)
    return result.exit_code


def _make_planning_request(job: Job, inventory: Inventory, whole: Inventory) -> LaunchRequest:
    """Return the launch for which `check` makes a plan. The launch is never started.

    The plan shows which ports and how many tasks each host would have.
    """
    # Without these options, planning raises an error in cases that a check must report.
    options = Options(allow_public=True, allow_open=True, any_mode=True)
    identity = (time.time(), operator_name(), lock_holder())
    cache, known = tree_cache_folder(), whole.hosts
    return LaunchRequest(inventory, job, "check", *identity, options, cache=cache, known=known)


def _show_checks(flags: Flags, hosts: list[CheckedHostRow], links: list[LinkRow]) -> None:
    """Print the checks. The fix in a check is a command that the operator can type as it is
    printed."""
    for each in (*links, *(each for host in hosts for each in host["checks"])):
        each["fix"] = adapt_advice(flags, each["fix"]) if each["fix"] else None
    show_check_problems(flags.out, hosts, links, quiet=flags.quiet)
