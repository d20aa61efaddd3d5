"""`tfdeploy check`: preflight of every host and between every pair of hosts."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tfdeploy.cli.flags import CommonFlags, finish_parser

if TYPE_CHECKING:
    from tfdeploy.model.inventory import Inventory
    from tfdeploy.model.job import Job
    from tfdeploy.model.printed import CheckAnswer
    from tfdeploy.operations.launch import Launch


@dataclass(frozen=True, kw_only=True)
class Flags(CommonFlags):
    deep: bool = False


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "check",
        help="preflight of every host and between every pair of hosts",
        description="Looks for what would go wrong in a launch, and names what mends it: each host, and each host to each other "
        "on the ports that will be used. Needs no run, and changes nothing.",
        epilog="Exit 0: nothing wrong (warnings may be shown), 1: something is, 4: a host was not reached.",
    )
    parser.add_argument("--deep", action="store_true", help="also latency and bandwidth of each pair, about a second a host")
    finish_parser(parser, Flags, run)


def run(flags: Flags) -> int:
    from tfdeploy.cli import context
    from tfdeploy.cli.views import plain_view
    from tfdeploy.model.check import host_rows, link_rows
    from tfdeploy.model.selection import select
    from tfdeploy.operations.check import Preflight, check
    from tfdeploy.operations.emit import notices_to

    job = context.job_here(flags)
    known = context.whole_inventory(flags, job)
    inventory = select(known, flags.limit, flags.exclude)
    asked = Preflight(inventory, _launch_of(job, inventory, known) if job else None, flags.deep)
    with context.open_fleet(flags) as fleet:
        view = plain_view(flags)
        fleet.on_notice = notices_to(view)
        found = check(asked, fleet, view)
    hosts, links = host_rows(found), link_rows(found)
    if flags.json:
        answer: CheckAnswer = {"ok": found.ok, "hosts": hosts, "links": links}
        print(json.dumps(answer))
    else:
        _show(flags, hosts, links)
    return found.exit_code


def _launch_of(job: Job, inventory: Inventory, known: Inventory) -> Launch:
    """The launch whose plan says which ports and how many tasks each host will have; it is never made."""
    import time

    from tfdeploy.cli import context
    from tfdeploy.operations.launch import Launch
    from tfdeploy.planning.options import Options

    now, holder = time.time(), context.holder()
    options = Options(allow_public=True, allow_open=True)  # a check reports what a launch refuses
    cache = context.state_folder() / "trees"
    by = (now, holder.words, holder.as_json(now))
    return Launch(inventory, job, "check", *by, options, cache=cache, known=known.hosts)


def _show(flags: Flags, hosts: list[Any], links: list[Any]) -> None:
    from tfdeploy.ui.checks import show_checks
    from tfdeploy.ui.terminal import terminal_of

    for host in hosts:
        for each in host["checks"]:
            each["fix"] = flags.typed(each["fix"]) if each["fix"] else None
    for link in links:
        link["fix"] = flags.typed(link["fix"]) if link["fix"] else None
    show_checks(terminal_of(sys.stdout, flags.color), hosts, links, quiet=flags.quiet)
