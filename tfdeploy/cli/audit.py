"""`tfdeploy audit [RUN]`: who did what on the hosts, and what is left there. Reads only."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tfdeploy.cli.flags import OfRun, finish_parser

if TYPE_CHECKING:
    from tfdeploy.errors import UsageError
    from tfdeploy.model.inventory import Host
    from tfdeploy.model.printed import AuditAnswer
    from tfdeploy.operations.audit import Audit, Subject


@dataclass(frozen=True, kw_only=True)
class Flags(OfRun):
    pass


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "audit",
        help="who did what on the hosts, and what is left there",
        description="Who did what from where, as the hosts' audit logs say; ports, secrets, versions, what is left. Reads only.",
        epilog="0: nothing is left and each log is whole; 1: something is left, or a log was changed; 4: a host was not reached.",
    )
    parser.add_argument("wanted", nargs="?", metavar="RUN", help="id or unique prefix (default: all that the hosts have)")
    finish_parser(parser, Flags, run)


def run(flags: Flags) -> int:
    from tfdeploy.cli import context
    from tfdeploy.errors import worst
    from tfdeploy.operations.audit import audit

    with context.open_fleet(flags) as fleet:
        subject, hosts, unknown = _subject(flags, fleet)
        subject = replace(subject, secret_paths=context.secret_paths_here(flags))
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
    from tfdeploy.cli import context
    from tfdeploy.errors import ConfigError, UsageError
    from tfdeploy.operations.audit import Subject, hosts_of_run

    if flags.wanted is None:
        return Subject(), context.inventory_here(flags).hosts, None
    try:
        plan, only, _ = context.chosen_run(flags, fleet)
    except ConfigError:
        raise
    except UsageError as error:
        job = context.job_here(flags)
        if job is None:
            raise
        return Subject(context.checked_run_name(flags.wanted), job.name), context.load_inventory(flags, job).hosts, error
    return Subject(plan.run, plan.job, plan), hosts_of_run(plan, only), None


def _as_json(found: Audit) -> AuditAnswer:
    from tfdeploy import __version__

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
    from tfdeploy.cli import context
    from tfdeploy.ui.audit import show_audit
    from tfdeploy.ui.terminal import terminal_of

    context.show_errors(flags, found.errors)
    if flags.quiet and found.ok:
        return
    show_audit(terminal_of(sys.stdout, flags.color), _as_json(found))
