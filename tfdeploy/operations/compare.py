"""`tfdeploy compare`: what is known of several runs, from their hosts and from this machine. Reads only."""

from __future__ import annotations

from collections.abc import Sequence

from tfdeploy.errors import TfdeployError
from tfdeploy.model.compare import ComparedRun
from tfdeploy.model.plan import Plan
from tfdeploy.operations.samples import samples
from tfdeploy.store.runs import RunStore
from tfdeploy.transport.protocols import Fleet

Errors = dict[str, TfdeployError]


def compared(fleet: Fleet, plans: Sequence[Plan], store: RunStore) -> tuple[list[ComparedRun], Errors]:
    """The runs in this order, and the hosts that gave no answer."""
    runs, errors = [], Errors()
    for plan in plans:
        taken = samples(fleet, plan)
        errors.update(taken.errors)
        began = min((rows[0].time for rows in taken.tasks.values() if rows), default=plan.created)
        runs.append(
            ComparedRun(
                plan=plan,
                started=min(began, plan.created) if plan.created else began,
                tasks=taken.tasks,
                files=store.files(plan.run),
            )
        )
    return runs, errors
