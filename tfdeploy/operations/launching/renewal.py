"""Renews a prepared run on its hosts: without a renewal, a host ends an uncommitted run after a
minute.

Renewals run on a thread of their own and call all hosts at once, so that a slow host delays no
other.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tfdeploy.errors import HostFailed, TfdeployError, has_code
from tfdeploy.model.answers.runs import RUN_RENEW
from tfdeploy.model.answers.verb import Nothing
from tfdeploy.model.plan import Plan
from tfdeploy.operations.outcomes import split, together
from tfdeploy.operations.run_lookup.ask import ask_all
from tfdeploy.transport.protocols import Fleet

EVERY_S = 15.0  # of the 60 s that a host waits
ANSWER_S = 10.0


@contextmanager
def renewed(fleet: Fleet, plan: Plan) -> Iterator[None]:
    """Renew the run every EVERY_S seconds."""
    closed = threading.Event()

    def renew_again() -> None:
        while not closed.wait(EVERY_S):  # errors are left to the launch's next step
            renew(fleet, plan, timeout_s=ANSWER_S, retry=False)

    threading.Thread(target=renew_again, name="renewal", daemon=True).start()
    try:
        yield
    finally:
        closed.set()


def renew(
    fleet: Fleet, plan: Plan, *, timeout_s: float = 60.0, retry: bool = True
) -> dict[str, Nothing | TfdeployError]:
    """Each host's answer: nothing, or the error that it has ended the run."""
    return ask_all(
        fleet, plan, RUN_RENEW, {"plan_digest": plan.digest}, retry=retry, timeout_s=timeout_s
    )


def has_lapsed(error: TfdeployError) -> bool:
    """Whether the host reports that the run has ended, or has removed it because no renewal
    came."""
    return has_code(error, "ended", "unknown_run")


def lapsed(ended: Mapping[str, TfdeployError], of: int) -> TfdeployError:
    """One error for the hosts on which a run that was prepared has ended before its commit."""
    return together("start", {host: _in_words(error) for host, error in ended.items()}, of)


def refuse_lapsed(answers: Mapping[str, Any | TfdeployError]) -> None:
    """Raises one error for the hosts where the run has lapsed."""
    _, bad = split(answers)
    if ended := {host: error for host, error in bad.items() if has_lapsed(error)}:
        raise lapsed(ended, len(answers))


def _in_words(error: TfdeployError) -> TfdeployError:
    if has_code(error, "unknown_run"):
        return HostFailed(
            "the prepared run has ended: this host heard nothing of the launch for a minute",
            where=error.where,
        )
    return error
