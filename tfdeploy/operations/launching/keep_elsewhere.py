"""Rename the job's `keep` folders (checkpoints) on hosts that a run does not use.

`launch --fresh` does this, because a later launch could otherwise continue from these checkpoints.
The folders are renamed after the run's commit, so a failed launch has nothing to undo on these
hosts.
"""

from __future__ import annotations

from tfdeploy.model.answers.files import KEEP_ASIDE
from tfdeploy.model.answers.hosts import LockHolder
from tfdeploy.model.events import Emit
from tfdeploy.model.inventory import Hosts, hosts_except
from tfdeploy.model.plan import Plan
from tfdeploy.operations.emit import emit_warning
from tfdeploy.operations.lock import HostLocks
from tfdeploy.operations.outcomes import split_outcomes
from tfdeploy.transport.protocols import Errors, Fleet, Session


def rename_keep_on_others(
    fleet: Fleet, plan: Plan, hosts: Hosts, holder: LockHolder, emit: Emit
) -> Errors:
    """Rename the `keep` folders on those of `hosts` that are not in the plan.

    Later runs ignore the renamed folders. Returns the errors by host, and emits a warning for each
    host that failed.
    """
    unused_hosts = hosts_except(hosts, plan.host_names)
    if not unused_hosts or not plan.keep:
        return {}

    def set_aside(session: Session) -> None:
        session.agent().call(KEEP_ASIDE, {**plan.run_args, "keep": list(plan.keep)})

    lock = HostLocks(fleet, unused_hosts, plan.job, "launch", holder, emit)
    with lock.hold_where_possible() as failed:
        failed.update(split_outcomes(fleet.each(lock.hosts, set_aside))[1])
    for name, error in failed.items():
        text = (
            "the `keep` folders on this host were not renamed, so a later launch may continue from "
            f"their checkpoints: {error.what}"
        )
        emit_warning(emit, text, host=name, run=plan.run)
    return failed
