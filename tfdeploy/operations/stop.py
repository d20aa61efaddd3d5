"""Stop a run on all hosts at once (`tfdeploy stop`).

Each host sends SIGTERM to its tasks, waits for the grace period, sends SIGKILL, and then verifies
that no process of the run is left.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tfdeploy.errors import AgentError, TfdeployError
from tfdeploy.model.answers.runs import RUN_STOP, RunEnded
from tfdeploy.model.plan import Plan
from tfdeploy.operations.retry import PATIENCE_S, OnRetry, each_with_retries
from tfdeploy.operations.run_lookup.find_run import hosts_of
from tfdeploy.operations.watch.watch import Watch
from tfdeploy.transport.protocols import Fleet, Session

SLACK_S = 60.0  # a host must answer within this many seconds after the grace period
Outcome = RunEnded | TfdeployError | None  # None stands for a host that does not know the run


def stop(
    fleet: Fleet,
    plan: Plan,
    *,
    grace_s: float,
    on_done: Callable[[str, Any], None] | None = None,
    on_retry: OnRetry | None = None,
) -> dict[str, Outcome]:
    """Stop the run on all its hosts, and return every host's outcome.

    A host whose answer was lost or too slow is called again: see `each_with_retries`.
    """

    def stop_on_host(session: Session) -> RunEnded | None:
        args = {**plan.run_args, "grace_s": grace_s}
        try:
            return session.agent().call(RUN_STOP, args, timeout_s=grace_s + SLACK_S)
        except AgentError as error:
            if error.code != "unknown_run":
                raise
            return None

    patience_s = PATIENCE_S + grace_s
    return each_with_retries(
        fleet,
        hosts_of(plan),
        stop_on_host,
        patience_s=patience_s,
        on_done=on_done,
        on_retry=on_retry,
    )


def run_end_before_stop(fleet: Fleet, plan: Plan, results: Mapping[str, Outcome]) -> str | None:
    """Return how the run ended, if it had already ended before `stop` was called.

    Returns None if the run was still alive when `stop` was called, or if a host did not answer.
    """
    outcomes = [each for each in results.values() if each is not None]
    if not outcomes or not all(isinstance(each, RunEnded) and each.had_ended for each in outcomes):
        return None
    view = Watch(fleet, plan, lambda event: None).poll()
    return f"failed ({view.cause})" if view.state == "failed" else view.state
