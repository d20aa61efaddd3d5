"""Ask hosts for the newest attempt of each task of a run."""

from __future__ import annotations

from collections.abc import Collection

from tfdeploy.model.answers.runs import RUN_STATUS
from tfdeploy.model.plan import Plan
from tfdeploy.operations.outcomes import split_outcomes
from tfdeploy.operations.run_lookup.call_hosts import call_all
from tfdeploy.transport.protocols import Errors, Fleet


def newest_attempt_numbers(
    fleet: Fleet, plan: Plan, tasks: Collection[str], host_errors: Errors
) -> dict[str, int]:
    """Return {task: the number of its newest attempt}. The first attempt has number 1.

    Adds the errors of hosts that do not answer to `host_errors`, and leaves out the tasks of these
    hosts.
    """
    owners = {task.task: task.host for task in plan.tasks if task.task in tasks}
    answers, silent = split_outcomes(
        call_all(fleet, plan, RUN_STATUS, only_hosts=set(owners.values()))
    )
    host_errors.update(silent)
    numbers = {}
    for host, answer in answers.items():
        own_tasks = [status for status in answer.tasks if owners.get(status.task) == host]
        numbers.update({status.task: max(1, status.attempt) for status in own_tasks})
    return numbers
