"""Run the fast checks of a preflight on the facts that a launch has read from its hosts.

Some checks are left out, because the planner already raises an error or adds a note for the same
problems.
"""

from __future__ import annotations

from collections.abc import Mapping

from tfdeploy.errors import Refused
from tfdeploy.model.events import Emit
from tfdeploy.model.facts import HostFacts
from tfdeploy.model.inventory import Inventory
from tfdeploy.operations.emit import emit_warning
from tfdeploy.operations.outcomes import combine_errors
from tfdeploy.planning.preflight.case import Needs
from tfdeploy.planning.preflight.judge import (
    BEYOND_PLAN,
    ProbedHost,
    ProbeResults,
    check_hosts,
    failed_error_checks,
)
from tfdeploy.text.names import fold_names
from tfdeploy.text.nexts import insert_host_names, replace_host_name

# The name of a check. The notes of the plan already contain the warnings of this check, so only
# errors of this check are reported here.
NOTED = "logout"
FORCE = "correct it (`tfdeploy check` shows all problems), or ignore it with --force"


def preflight(
    needs: Needs,
    inventory: Inventory,
    facts_by_host: Mapping[str, HostFacts],
    *,
    force: bool,
    emit: Emit,
) -> None:
    """Check the hosts of the plan `needs.plan`, and emit a warning for each minor problem.

    Raises Refused if there is a serious problem. With `force`, a serious problem leads only to a
    warning.
    """
    plan = needs.plan
    assert plan is not None
    probed = {
        host.host: ProbedHost(inventory.host(host.host), facts_by_host[host.host])
        for host in plan.hosts
    }
    checks = check_hosts(ProbeResults(probed, needs), BEYOND_PLAN)
    errors = {} if force else failed_error_checks(checks)
    if errors:
        raise combine_errors(
            "check",
            {
                host: Refused(
                    first.detail, where=host, next=f"{first.fix}; {FORCE}" if first.fix else FORCE
                )
                for host, (first, *_) in errors.items()
            },
            len(probed),
        )
    hosts_by_problem: dict[str, list[str]] = {}
    for host, host_checks in checks.items():
        for each in host_checks:
            if each.is_error or not (each.ok or each.check == NOTED):
                problem = f"{each.detail}: {each.fix}" if each.fix else each.detail
                hosts_by_problem.setdefault(replace_host_name(problem, host), []).append(host)
    for text, names in hosts_by_problem.items():
        emit_warning(emit, f"{fold_names(names)}: {insert_host_names(text, names)}", run=plan.run)
