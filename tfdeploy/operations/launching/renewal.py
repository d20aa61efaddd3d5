"""Renew a prepared run on its hosts until the run is committed.

If a launch does not renew a prepared run for a minute, the hosts end the run. A separate thread
renews the run on all hosts at once, so that a slow step or a slow host does no harm.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tfdeploy.errors import HostFailed, TfdeployError, has_code
from tfdeploy.machine.threads import start_thread
from tfdeploy.model.answers.runs import RUN_RENEW
from tfdeploy.model.plan import Plan
from tfdeploy.operations.outcomes import combine_errors, split_outcomes
from tfdeploy.operations.run_lookup.call_hosts import call_all
from tfdeploy.text.typed import EmptyAnswer
from tfdeploy.transport.protocols import Fleet, Outcomes

EVERY_S = 15.0  # seconds between renewals; a host ends the run after 60 s without renewal
ANSWER_S = 10.0  # a host must answer a renewal within this many seconds


@contextmanager
def keep_renewing_run(fleet: Fleet, plan: Plan) -> Iterator[None]:
    """Renew the run every EVERY_S seconds while the context is open."""
    closed = threading.Event()

    def renew_again() -> None:
        # Errors are ignored here, because the next step of the launch reports them.
        while not closed.wait(EVERY_S):
            renew_prepared_run(fleet, plan, timeout_s=ANSWER_S, retry=False)

    start_thread(renew_again, name="renewal")
    try:
        yield
    finally:
        closed.set()


def renew_prepared_run(
    fleet: Fleet, plan: Plan, *, timeout_s: float = 60.0, retry: bool = True
) -> Outcomes[EmptyAnswer]:
    """Renew the run once on all hosts. Return {host: empty answer or error}."""
    return call_all(
        fleet, plan, RUN_RENEW, {"plan_digest": plan.digest}, retry=retry, timeout_s=timeout_s
    )


def says_run_ended(error: TfdeployError) -> bool:
    """Return whether the error says that the host has ended or removed the run."""
    return has_code(error, "ended", "unknown_run")


def run_ended_error(error_by_host: Mapping[str, TfdeployError], host_count: int) -> TfdeployError:
    """Return one error for all hosts on which a prepared run ended before its commit."""
    return combine_errors(
        "start",
        {host: _explain_unknown_run(error) for host, error in error_by_host.items()},
        host_count,
    )


def raise_if_run_ended_or_unknown(answers: Mapping[str, Any | TfdeployError]) -> None:
    """If any hosts have ended the run or do not know it any more, raise one error for them."""
    _, errors = split_outcomes(answers)
    if ended := {host: error for host, error in errors.items() if says_run_ended(error)}:
        raise run_ended_error(ended, len(answers))


def _explain_unknown_run(error: TfdeployError) -> TfdeployError:
    """Return the error to report for a host that has ended the prepared run.

    If `error` says only that the host does not know the run, a new error gives the reason.
    Otherwise `error` is returned.
    """
    if has_code(error, "unknown_run"):
        return HostFailed(
            "the prepared run has ended: this host received no renewal from the launch for a "
            "minute",
            where=error.where,
        )
    return error
