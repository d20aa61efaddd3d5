"""While a launch is alive, its hosts hear so: what is prepared and not committed ends a minute after it last heard it.

Each round runs beside the launch, so that one slow host keeps no other from hearing in time.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from tfdeploy.errors import AgentError, HostFailed, TfdeployError
from tfdeploy.model.answers.runs import RUN_RENEW
from tfdeploy.model.answers.verb import Nothing
from tfdeploy.model.plan import Plan
from tfdeploy.operations.ask import ask_all
from tfdeploy.operations.outcomes import split, together
from tfdeploy.transport.protocols import Fleet

EVERY_S = 15.0  # of the 60 s that a host waits
ANSWER_S = 10.0


class Renewal:
    """Use as a context manager. Nothing is said before `of` has named the plan that is being prepared."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._plan: Plan | None = None
        self._over = threading.Event()

    def of(self, plan: Plan) -> None:
        self._plan = plan

    def __enter__(self) -> Renewal:
        threading.Thread(target=self._renew, name="renewal", daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._over.set()

    def _renew(self) -> None:
        while not self._over.wait(EVERY_S):
            if self._plan is not None:  # what a host answers, the launch finds out at its next step
                renew(self._fleet, self._plan, timeout_s=ANSWER_S, again=False)


def renew(fleet: Fleet, plan: Plan, *, timeout_s: float = 60.0, again: bool = True) -> dict[str, Nothing | TfdeployError]:
    """What each host says to it: nothing, or that it has ended the run."""
    args = {host.host: {"plan_digest": plan.digest} for host in plan.hosts}
    return ask_all(fleet, plan, RUN_RENEW, args, again=again, timeout_s=timeout_s)


def has_lapsed(error: TfdeployError) -> bool:
    """Whether a host says that the run has ended there, or was removed as what no launch renews is."""
    return isinstance(error, AgentError) and error.code in ("ended", "unknown_run")


def is_told(error: TfdeployError) -> bool:
    """Whether the host of a lapsed run still knows why it ended."""
    return isinstance(error, AgentError) and error.code == "ended"


def lapsed(over: Mapping[str, TfdeployError], of: int) -> TfdeployError:
    """One error for the hosts on which a run that was prepared has ended before its commit."""
    return together("start", {host: _in_words(error) for host, error in over.items()}, of)


def refuse_lapsed(answers: Mapping[str, Any | TfdeployError]) -> None:
    """Raises for the hosts among these that say so."""
    _, bad = split(answers)
    if over := {host: error for host, error in bad.items() if has_lapsed(error)}:
        raise lapsed(over, len(answers))


def _in_words(error: TfdeployError) -> TfdeployError:
    if isinstance(error, AgentError) and error.code == "unknown_run":
        return HostFailed("what was prepared has ended: this host heard nothing of the launch for a minute", where=error.where)
    return error
