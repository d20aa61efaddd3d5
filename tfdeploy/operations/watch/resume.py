"""A host that lost all of a run, by a reboot, goes on with it when somebody who follows the run finds it so.

Asked of the host only while no other host says that the run is over. What then starts again there is the minder's to decide.
Where the others say that an operator stopped it meanwhile, the host is told so: its secrets go, as they did elsewhere.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from tfdeploy.errors import AgentError, HostUnreachable, TfdeployError
from tfdeploy.model.answers.runs import RUN_ABORT, RUN_RESUME, RUN_STATUS, RUN_STOP
from tfdeploy.model.answers.verb import Verb
from tfdeploy.model.plan import Plan
from tfdeploy.operations.ask import ask_all
from tfdeploy.operations.find_run import hosts_of
from tfdeploy.operations.outcomes import split
from tfdeploy.transport.protocols import Fleet

NEVER = ("ended", "superseded", "live_run", "unknown_run", "unknown_verb")  # what a host answers for good

TRIES, AGAIN_S = 60, 1.0
# to a host that was away: it also forgets the run's secrets once it is over
SAYS: dict[str, tuple[Verb[Any], dict[str, str]]] = {
    "goes on": (RUN_RESUME, {}),
    "stopped": (RUN_STOP, {}),
    "ended": (RUN_ABORT, {"reason": "the run had ended while this host was away"}),
}


def resume(fleet: Fleet, plan: Plan, host: str) -> bool:
    """Whether the run is minded there now. Raises TfdeployError where it may be later: no answer, a port taken, a full disk."""
    how = _how_it_is(fleet, plan)
    verb, more = SAYS[how]
    (one,) = (each for each in hosts_of(plan) if each.name == host)
    try:
        answer = fleet.each((one,), lambda session: session.agent().call(verb, {"run": plan.run, "job": plan.job, **more}))[host]
        if isinstance(answer, TfdeployError):
            raise answer
    except AgentError as error:
        if error.code in NEVER:
            return False
        raise
    return how == "goes on"


def resume_patiently(fleet: Fleet, plan: Plan, host: str, say: Callable[[str], None], stop: threading.Event) -> bool:
    """`resume`, again while what is in its way may go away. Raises HostUnreachable."""
    said: str | None = None
    for _ in range(TRIES):
        try:
            minded = resume(fleet, plan, host)
            if minded:
                say("all of the run was gone here (rebooted, or killed): it goes on")
            return minded
        except HostUnreachable:
            raise
        except TfdeployError as error:
            if error.what != said:
                said = error.what
                say(f"the run cannot go on here: {said}")
        if stop.wait(AGAIN_S):
            break
    return False


def _how_it_is(fleet: Fleet, plan: Plan) -> str:
    """What the hosts that answer know: "goes on", "stopped", or "ended" well or not."""
    answers, _ = split(ask_all(fleet, plan, RUN_STATUS, again=False, timeout_s=15.0))
    states = [answer.host_state for answer in answers.values()]
    if any(state.stop_requested for state in states):
        return "stopped"
    if any(state.abort_reason or state.first_death for state in states):
        return "ended"
    outcomes: dict[str, str | None] = {}
    for answer, state in zip(answers.values(), states, strict=True):
        outcomes.update({task: ending["outcome"] for task, ending in state.ended_tasks.items()})
        outcomes.update({status.task: status.outcome for status in answer.tasks})
    return "ended" if plan.deciding and all(outcomes.get(task) == "succeeded" for task in plan.deciding) else "goes on"
