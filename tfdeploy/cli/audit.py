"""`tfdeploy audit [RUN]`: who did what on the hosts, and what is left there. Reads only."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tfdeploy import __version__
from tfdeploy.cli.arguments.audit import Flags
from tfdeploy.cli.chosen_run import chosen_run
from tfdeploy.cli.fleet import open_fleet
from tfdeploy.cli.messages import show_errors
from tfdeploy.cli.project import inventory_here, job_here, load_inventory, secret_paths_here
from tfdeploy.cli.run_names import checked_run_name
from tfdeploy.errors import ConfigError, UsageError, worst
from tfdeploy.operations.audit import Subject, audit
from tfdeploy.operations.find_run import hosts_of
from tfdeploy.ui.audit import show_audit

if TYPE_CHECKING:
    from tfdeploy.model.inventory import Host
    from tfdeploy.model.printed import AuditAnswer
    from tfdeploy.operations.audit import Audit


def run(flags: Flags) -> int:
    with open_fleet(flags) as fleet:
        subject, hosts, unknown = _subject(flags, fleet)
        subject = replace(subject, secret_paths=secret_paths_here(flags))
        found = audit(fleet, hosts, subject)
    if unknown is not None and not found.entries and not found.left and not found.errors:
        raise unknown
    if flags.json:
        print(json.dumps(_as_json(found)))
    else:
        _show(flags, found)
    return worst([*(error.exit_code for error in found.errors.values()), *([] if found.clean else [1])])


def _subject(flags: Flags, fleet: Any) -> tuple[Subject, tuple[Host, ...], UsageError | None]:
    """(its subject, the hosts, why no plan was found). A run that was rolled back has none: the logs know its whole id."""
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
        return Subject(checked_run_name(flags.wanted), job.name), load_inventory(flags, job).hosts, error
    return Subject(plan.run, plan.job, plan), hosts_of(plan, only), None


def _as_json(found: Audit) -> AuditAnswer:
    return {
        "run": found.subject.run,
        "ok": found.ok,
        "entries": found.entries,
        "ports": found.ports,
        "admitted": found.admitted,
        "secrets": found.secrets,
        "left": found.left,
        "faults": found.faults,
        "versions": {"operator": __version__, "hosts": found.versions},
        "errors": [{"host": host, "error": error.what} for host, error in found.errors.items()],
    }


def _show(flags: Flags, found: Audit) -> None:
    show_errors(flags, found.errors)
    if flags.quiet and found.ok:
        return
    show_audit(flags.out, _as_json(found))
