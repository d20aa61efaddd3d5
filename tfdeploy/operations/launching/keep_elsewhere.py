"""Set checkpoints (`keep`) aside on the hosts that a run does not use (`launch --fresh`).

Otherwise a later launch could continue from these checkpoints. This is done after the run's commit,
so a failed launch has nothing to undo on these hosts.
"""

from __future__ import annotations

from tfdeploy.errors import TfdeployError
from tfdeploy.model.answers.files import KEEP_ASIDE
from tfdeploy.model.answers.hosts import LockHolder
from tfdeploy.model.events import Emit
from tfdeploy.model.inventory import Host
from tfdeploy.model.plan import Plan
from tfdeploy.operations.emit import emit_note
from tfdeploy.operations.lock import locked_where_possible
from tfdeploy.operations.outcomes import split_outcomes
from tfdeploy.transport.protocols import Fleet, Session


def set_aside_elsewhere(
    fleet: Fleet, plan: Plan, hosts: tuple[Host, ...], holder: LockHolder, emit: Emit
) -> dict[str, TfdeployError]:
    """Set the keep folders aside on those of `hosts` that are not in the plan.

    Returns the errors by host, and emits a warning for each host that failed.
    """
    used = {*plan.host_names}
    others = tuple(host for host in hosts if host.name not in used)
    if not others or not plan.keep:
        return {}

    def set_aside(session: Session) -> None:
        session.agent().call(
            KEEP_ASIDE, {"job": plan.job, "run": plan.run, "keep": list(plan.keep)}
        )

    with locked_where_possible(fleet, others, plan.job, "launch", holder, emit) as (lock, failed):
        failed.update(split_outcomes(fleet.each(lock.hosts, set_aside))[1])
    for name, error in failed.items():
        text = f"`keep` there was not set aside, and a later launch may go on from it: {error.what}"
        emit_note(emit, text, level="warning", host=name, run=plan.run)
    return failed
