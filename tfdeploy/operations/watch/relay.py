"""Relay the end of a run to hosts that cannot reach a host that knows of the end.

Minders inform each other within seconds. If a host does not know of the end after WAIT_S, any
process that follows the run informs the host.
"""

from __future__ import annotations

import time

from tfdeploy.errors import TfdeployError
from tfdeploy.model.answers.runs import RUN_KNOWN, RUN_TELL
from tfdeploy.model.plan import Plan
from tfdeploy.model.status.uninformed import uninformed
from tfdeploy.model.text.folding import fold_names
from tfdeploy.operations.emit import emit_note
from tfdeploy.operations.run_lookup.ask import ask_all
from tfdeploy.operations.watch.watch import Watch
from tfdeploy.transport.protocols import Fleet

WAIT_S = 10.0  # time for the minders to inform each other, and pause between two tries
ANSWER_S = 15.0


class Relay:
    """Relays the end of the run that a watch follows.

    One thread calls `relay_if_due` repeatedly.
    """

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._since: float | None = None
        self._noted: tuple[str, ...] = ()

    def relay_if_due(self, now: float | None = None) -> None:
        """Relay the end, and emit a note, if a host has not known of it for WAIT_S.

        `now` is in monotonic seconds (None: the time now).
        """
        now = time.monotonic() if now is None else now
        answering = {
            host: state
            for host, state in self._watch.states.items()
            if host not in self._watch.errors
        }
        uninformed_hosts = uninformed(answering)
        if uninformed_hosts is None:
            self._since, self._noted = None, ()
        elif self._since is None:
            self._since = now
        elif now - self._since >= WAIT_S:
            self._since = now
            self._relay(*uninformed_hosts)

    def _relay(self, informed: str, hosts: tuple[str, ...]) -> None:
        watch = self._watch
        if hosts != self._noted:
            self._noted = hosts
            emit_note(
                watch.emit,
                describe_uninformed(informed, hosts) + ": this machine informs them",
                level="warning",
                run=watch.plan.run,
            )
        relay_end(watch.fleet, watch.plan, informed, hosts)


def relay_end(fleet: Fleet, plan: Plan, informed: str, hosts: tuple[str, ...]) -> None:
    """Relay the end from the host `informed` to `hosts`.

    Errors are ignored, because the caller repeats the call.
    """
    answer = ask_all(fleet, plan, RUN_KNOWN, retry=False, timeout_s=ANSWER_S, only=(informed,))[
        informed
    ]
    if isinstance(answer, TfdeployError) or answer.known is None:
        return
    ask_all(
        fleet, plan, RUN_TELL, {"known": answer.known}, retry=False, timeout_s=ANSWER_S, only=hosts
    )


def describe_uninformed(informed: str, hosts: tuple[str, ...]) -> str:
    """Return a text that says which hosts do not know of the end."""
    return (
        f"{fold_names(hosts)} {'has' if len(hosts) == 1 else 'have'} not heard from {informed} "
        "that the run is over"
    )
