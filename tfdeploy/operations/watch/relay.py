"""Tell hosts that a run has ended, if the hosts cannot learn it from each other.

Usually hosts tell each other within seconds that the run has ended. If a host still does not know
it after WAIT_S seconds, each tfdeploy process that follows the run tells the host.
"""

from __future__ import annotations

import json
import time

from tfdeploy.errors import TfdeployError
from tfdeploy.model.answers.runs import RUN_KNOWN, RUN_TELL
from tfdeploy.model.plan import Plan
from tfdeploy.model.status.run_status import find_informed_and_uninformed_hosts
from tfdeploy.operations.emit import emit_warning
from tfdeploy.operations.run_lookup.call_hosts import call_all
from tfdeploy.operations.watch.watch import Watch
from tfdeploy.text.names import fold_names
from tfdeploy.transport.protocols import Fleet

# Hosts have this many seconds to tell each other that the run has ended. Then this machine tells
# the hosts that do not know it, and does so again every WAIT_S seconds.
WAIT_S = 10.0
ANSWER_S = 15.0


class EndRelay:
    """Tells hosts that a run has ended. `watch` tracks the state of this run.

    One thread calls `tell_hosts_if_due` repeatedly.
    """

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._since: float | None = None
        self._noted: tuple[str, ...] = ()

    def tell_hosts_if_due(self) -> None:
        """Tell hosts that the run has ended, if they have not learned it within WAIT_S seconds.

        Emits a note.
        """
        now = time.monotonic()
        answering = {
            host: state
            for host, state in self._watch.states.items()
            if host not in self._watch.errors
        }
        uninformed_hosts = find_informed_and_uninformed_hosts(answering, self._watch.plan)
        if uninformed_hosts is None:
            self._since, self._noted = None, ()
        elif self._since is None:
            self._since = now
        elif now - self._since >= WAIT_S:
            self._since = now
            self._tell_uninformed_hosts(*uninformed_hosts)

    def _tell_uninformed_hosts(
        self, informed: str | float, uninformed_hosts: tuple[str, ...]
    ) -> None:
        watch = self._watch
        if uninformed_hosts != self._noted:
            self._noted = uninformed_hosts
            emit_warning(
                watch.emit,
                describe_uninformed(informed, uninformed_hosts)
                + "; this machine reports the end of the run",
                run=watch.plan.run,
            )
        relay_run_end(watch.fleet, watch.plan, informed, uninformed_hosts)


def relay_run_end(
    fleet: Fleet, plan: Plan, informed: str | float, uninformed_hosts: tuple[str, ...]
) -> None:
    """Ask the host `informed` how the run ended, and tell `uninformed_hosts` the answer. If
    `informed` is a time, tell them that the run succeeded at this time.

    Errors are ignored, because the caller tries again later.
    """
    if isinstance(informed, float):
        known = json.dumps({"committed": True, "decided": informed})
    else:
        answer = call_all(
            fleet, plan, RUN_KNOWN, retry=False, timeout_s=ANSWER_S, only_hosts=(informed,)
        )[informed]
        if isinstance(answer, TfdeployError) or answer.known is None:
            return
        known = answer.known
    call_all(
        fleet,
        plan,
        RUN_TELL,
        {"known": known},
        retry=False,
        timeout_s=ANSWER_S,
        only_hosts=uninformed_hosts,
    )


def describe_uninformed(informed: str | float, uninformed_hosts: tuple[str, ...]) -> str:
    """Return a text that names the hosts that do not know that the run has ended."""
    what = (
        "that all deciding tasks have succeeded"
        if isinstance(informed, float)
        else f"from {informed} that the run is over"
    )
    verb = "has" if len(uninformed_hosts) == 1 else "have"
    return f"{fold_names(uninformed_hosts)} {verb} not heard {what}"
