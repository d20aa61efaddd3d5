"""`tfdeploy stop`: TERM to the process tree of every task, grace, KILL, verify, report; all hosts at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tfdeploy.errors import AgentError, TfdeployError
from tfdeploy.model.answers.runs import RUN_STOP, Ended
from tfdeploy.model.plan import Plan
from tfdeploy.model.rows import Survivor
from tfdeploy.model.status import run_view
from tfdeploy.operations.find_run import hosts_of
from tfdeploy.operations.retry import PATIENCE_S, OnRetry, each_with_retries
from tfdeploy.operations.watch.watch import Watch
from tfdeploy.transport.protocols import Fleet, Session

SLACK_S = 60.0  # for the answer, beyond the grace


@dataclass(frozen=True)
class Stopped:
    """The result on one host. `survivors`: processes still alive; `known`: the host held the run."""

    survivors: list[Survivor] = field(default_factory=list)
    seconds: float = 0.0
    known: bool = True
    messenger: bool = False  # this host's minder stays to tell unreachable hosts once they are back
    had_ended: bool = False  # before this stop


def _survivors(answer: Ended) -> list[Survivor]:
    return [{"pid": each.pid, "state": each.state, "command": each.command} for each in answer.survivors]


def stop(
    fleet: Fleet,
    plan: Plan,
    *,
    grace_s: float,
    hosts: frozenset[str] | None = None,
    on_done: Callable[[str, Any], None] | None = None,
    on_retry: OnRetry | None = None,
) -> dict[str, Stopped | TfdeployError]:
    """Every host's outcome. `hosts`: only these. On a host that does not know the run there is nothing to stop.

    A host whose answer was lost, or that was too slow, is called again: see `each_with_retries`.
    """

    def one(session: Session) -> Stopped:
        args = {"run": plan.run, "job": plan.job, "grace_s": grace_s}
        try:
            answer = session.agent().call(RUN_STOP, args, timeout_s=grace_s + SLACK_S)
        except AgentError as error:
            if error.code != "unknown_run":
                raise
            return Stopped(known=False)
        return Stopped(
            survivors=_survivors(answer), seconds=answer.seconds, messenger=answer.messenger, had_ended=answer.had_ended
        )

    wanted = tuple(host for host in hosts_of(plan) if hosts is None or host.name in hosts)
    return each_with_retries(fleet, wanted, one, patience_s=PATIENCE_S + grace_s, on_done=on_done, on_retry=on_retry)


def earlier_end(fleet: Fleet, plan: Plan, results: Mapping[str, Stopped | TfdeployError]) -> str | None:
    """Return how the run had ended before the stop. None: it was alive, or a host gave no answer."""
    known = [each for each in results.values() if not (isinstance(each, Stopped) and not each.known)]
    if not known or not all(isinstance(each, Stopped) and each.had_ended for each in known):
        return None
    watch = Watch(fleet, plan, lambda event: None, None)
    watch.ask()
    view = run_view(plan, watch.states, watch.tasks, unreachable=set(watch.errors))
    return f"failed ({view.cause})" if view.state == "failed" else view.state
