"""Resume a run on a host that lost all its processes of the run, for example by a reboot.

If no other host reports that the run is over, the run is resumed on this host, and the host itself
decides which of its tasks start again. If another host reports that the run was stopped or has
ended, the run is stopped or aborted on this host too, which also deletes the run's secrets there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from tfdeploy.errors import AgentError, HostUnreachable, TfdeployError
from tfdeploy.model.answers.runs import RUN_ABORT, RUN_RESUME, RUN_STATUS, RUN_STOP
from tfdeploy.model.plan import Plan
from tfdeploy.operations.outcomes import session_of, split_outcomes
from tfdeploy.operations.run_lookup.call_hosts import call_all
from tfdeploy.operations.run_lookup.find_run import hosts_of
from tfdeploy.text.typed import Verb
from tfdeploy.transport.protocols import Fleet

# After one of these error codes, tfdeploy does not try again, because a new attempt would fail too.
NEVER = ("ended", "superseded", "live_run", "unknown_run", "unknown_verb")

# tfdeploy tries to resume the run on a host at most TRIES times, every AGAIN_S seconds.
TRIES, AGAIN_S = 60, 1.0
# {state of the run: the verb to call on the host, and its arguments}. RUN_STOP and RUN_ABORT also
# delete the run's secrets.
VERBS: dict[str, tuple[Verb[Any], dict[str, str]]] = {
    "goes on": (RUN_RESUME, {}),
    "stopped": (RUN_STOP, {}),
    "ended": (RUN_ABORT, {"reason": "the run had ended while this host was away"}),
}


def resume_or_end_on_host(fleet: Fleet, plan: Plan, host: str) -> bool:
    """Resume, stop or abort the run on the host, depending on the state of the run.

    Return whether the run continues on the host. If the call fails but a later attempt may succeed,
    the error is raised.
    """
    state = _ask_run_state(fleet, plan)
    verb, verb_args = VERBS[state]
    (plan_host,) = hosts_of(plan, {host})
    try:
        session_of(fleet, plan_host).agent().call(verb, {**plan.run_args, **verb_args})
    except AgentError as error:
        if error.code in NEVER:
            return False
        raise
    return state == "goes on"


def resume_or_end_with_retries(
    fleet: Fleet, plan: Plan, host: str, report: Callable[[str], None], stop: threading.Event
) -> bool:
    """Call `resume_or_end_on_host` until it succeeds, for up to a minute.

    Returns the result of `resume_or_end_on_host`, or False if all attempts failed. `report` is
    called with a text about each new error, and about the success. Raises HostUnreachable.
    """
    reported: str | None = None
    for _ in range(TRIES):
        try:
            continues = resume_or_end_on_host(fleet, plan, host)
            if continues:
                report(
                    "no process of the run was alive on this host (after a reboot, or because they "
                    "were killed); the run now continues on this host"
                )
            return continues
        except HostUnreachable:
            raise
        except TfdeployError as error:
            if error.what != reported:
                reported = error.what
                report(f"the run cannot continue on this host: {reported}")
        if stop.wait(AGAIN_S):
            break
    return False


def _ask_run_state(fleet: Fleet, plan: Plan) -> str:
    """Return the state of the run that the hosts report: "goes on", "stopped" or "ended".

    Hosts that do not answer are ignored.
    """
    answers, _ = split_outcomes(call_all(fleet, plan, RUN_STATUS, retry=False, timeout_s=15.0))
    states = [answer.host_state for answer in answers.values()]
    if any(state.stop_requested for state in states):
        return "stopped"
    if any(state.abort_reason or state.first_death for state in states):
        return "ended"
    outcomes: dict[str, str | None] = {}
    for answer, state in zip(answers.values(), states, strict=True):
        outcomes.update({task: ending["outcome"] for task, ending in state.ended_tasks.items()})
        outcomes.update({status.task: status.outcome for status in answer.tasks})
    return (
        "ended"
        if plan.deciding and all(outcomes.get(task) == "succeeded" for task in plan.deciding)
        else "goes on"
    )
