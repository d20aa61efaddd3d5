"""`tfdeploy audit [RUN]`: who did what on the hosts, and what is left there. Reads only."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tfdeploy.cli.arguments.audit import Flags
from tfdeploy.cli.chosen_run import chosen_run
from tfdeploy.cli.fleet import open_fleet
from tfdeploy.cli.messages import show_errors
from tfdeploy.cli.output import print_json
from tfdeploy.cli.project import inventory_here, job_here, load_inventory, secret_paths_here
from tfdeploy.cli.run_names import checked_run_name
from tfdeploy.errors import ConfigError, UsageError, worst
from tfdeploy.operations.audit import Subject, audit
from tfdeploy.operations.run_lookup.find_run import hosts_of
from tfdeploy.ui.audit import show_audit

if TYPE_CHECKING:
    from tfdeploy.model.inventory import Host
    from tfdeploy.transport.protocols import Fleet


def run(flags: Flags) -> int:
    with open_fleet(flags) as fleet:
        subject, hosts, unknown = _subject(flags, fleet)
        subject = replace(subject, secret_paths=secret_paths_here(flags))
        found, errors = audit(fleet, hosts, subject)
    if unknown is not None and not found["entries"] and not found["left"] and not errors:
        raise unknown
    if flags.json:
        print_json(found)
    else:
        show_errors(flags, errors)
        if not (flags.quiet and found["ok"]):
            show_audit(flags.out, found)
    return worst([*errors.values(), 1 if found["left"] else 0])


def _subject(flags: Flags, fleet: Fleet) -> tuple[Subject, tuple[Host, ...], UsageError | None]:
    """(its subject, the hosts, why no plan was found). A run that was rolled back has none: the
    logs know its whole id."""
    if flags.wanted is None:
        return Subject(), inventory_here(flags).hosts, None
    try:
        plan, only, _ = chosen_run(flags, fleet)
    except ConfigError:
        raise
    except UsageError as error:
        job = job_here(flags)
        if job is None:
            raise
        return (
            Subject(checked_run_name(flags.wanted), job.name),
            load_inventory(flags, job).hosts,
            error,
        )
    return Subject(plan.run, plan.job, plan), hosts_of(plan, only), None
