"""Which attempts of its tasks a run has had, as its hosts say now."""

from __future__ import annotations

from collections.abc import Collection

from tfdeploy.errors import TfdeployError
from tfdeploy.model.answers.runs import RUN_STATUS
from tfdeploy.model.plan import Plan
from tfdeploy.operations.find_run import hosts_of
from tfdeploy.operations.outcomes import split
from tfdeploy.transport.protocols import Fleet, Session


def newest_attempts(fleet: Fleet, plan: Plan, tasks: Collection[str], lost: dict[str, TfdeployError]) -> dict[str, int]:
    """task -> its newest attempt, from 1 on. Adds hosts without an answer to `lost`; their tasks are left out."""
    needed = {task.host for task in plan.tasks if task.task in tasks}

    def ask(session: Session) -> dict[str, int]:
        answer = session.agent().call(RUN_STATUS, {"run": plan.run, "job": plan.job})
        return {status.task: max(1, status.attempt) for status in answer.tasks if status.task in tasks}

    answers, silent = split(fleet.each(tuple(host for host in hosts_of(plan) if host.name in needed), ask))
    lost.update(silent)
    owners = {task.task: task.host for task in plan.tasks}
    return {task: newest for host, found in answers.items() for task, newest in found.items() if owners[task] == host}
