"""Run `tfdeploy audit`: show who did what on the hosts, and what is left on them.

The verb changes nothing on the hosts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tfdeploy.cli.arguments.audit import Flags
from tfdeploy.cli.chosen_run import choose_run
from tfdeploy.cli.fleet import open_fleet
from tfdeploy.cli.messages import show_errors
from tfdeploy.cli.output import print_json
from tfdeploy.cli.project import (
    load_job_if_any,
    load_selected_inventory,
    possibly_sent_project_secrets,
)
from tfdeploy.cli.run_names import check_run_name
from tfdeploy.errors import ConfigError, UsageError, worst_exit_code
from tfdeploy.operations.audit import AuditSubject, audit
from tfdeploy.operations.run_lookup.find_run import hosts_of
from tfdeploy.ui.audit import show_audit

if TYPE_CHECKING:
    from tfdeploy.model.inventory import Host
    from tfdeploy.transport.protocols import Fleet


def run(flags: Flags) -> int:
    with open_fleet(flags) as fleet:
        subject, hosts, lookup_error = _find_audit_subject(flags, fleet)
        subject = replace(subject, secret_paths_by_job=possibly_sent_project_secrets(flags))
        answer, errors = audit(fleet, hosts, subject)
    if lookup_error is not None and not answer["entries"] and not answer["left"] and not errors:
        raise lookup_error
    if flags.json:
        print_json(answer)
    else:
        show_errors(flags, errors)
        if not (flags.quiet and answer["ok"]):
            show_audit(flags.out, answer)
    return worst_exit_code([*errors.values(), 1 if answer["left"] else 0])


def _find_audit_subject(
    flags: Flags, fleet: Fleet
) -> tuple[AuditSubject, tuple[Host, ...], UsageError | None]:
    """Return (what to audit, the hosts to ask, the error of the search for the run or None).

    The search fails if the run was rolled back, because such a run has no plan. The audit logs of
    the hosts may still contain the run, under its whole id.
    """
    if flags.run_prefix is None:
        return AuditSubject(), load_selected_inventory(flags).hosts, None
    try:
        plan, only_hosts, _ = choose_run(flags, fleet)
    except ConfigError:
        raise
    except UsageError as error:
        job = load_job_if_any(flags)
        if job is None:
            raise
        subject = AuditSubject(check_run_name(flags.run_prefix), job.name)
        return subject, load_selected_inventory(flags).hosts, error
    return AuditSubject(plan.run, plan.job, plan), hosts_of(plan, only_hosts), None
