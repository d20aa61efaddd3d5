"""The word that a run is over, carried from the host that knows it to those that are cut from it and not from here.

The hosts tell each other within seconds; what stays unheard for longer is carried, by whoever follows the run.
"""

from __future__ import annotations

import time

from tfdeploy.errors import TfdeployError
from tfdeploy.model.answers.runs import RUN_KNOWN, RUN_TELL
from tfdeploy.model.folding import fold_names
from tfdeploy.model.plan import Plan
from tfdeploy.model.uninformed import uninformed
from tfdeploy.operations.ask import ask_all
from tfdeploy.operations.emit import note
from tfdeploy.operations.watch.watch import Watch
from tfdeploy.transport.protocols import Fleet

WAIT_S = 10.0  # for the hosts to tell each other, and between two tries
ANSWER_S = 15.0


class Carrier:
    """Looks at what a watch knows; `look` is called again and again, by one thread."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._since: float | None = None
        self._told: tuple[str, ...] = ()

    def look(self, now: float | None = None) -> None:
        """Carries the word, and says so, where some have not heard it for WAIT_S."""
        now = time.monotonic() if now is None else now
        answering = {host: state for host, state in self._watch.states.items() if host not in self._watch.errors}
        teller, hosts = uninformed(answering)
        if teller is None or not hosts:
            self._since, self._told = None, ()
        elif self._since is None:
            self._since = now
        elif now - self._since >= WAIT_S:
            self._since = now
            self._carry(teller, hosts)

    def _carry(self, teller: str, hosts: tuple[str, ...]) -> None:
        watch = self._watch
        if hosts != self._told:
            self._told = hosts
            note(watch.emit, in_words(teller, hosts) + ": told from here", level="warning", run=watch.plan.run)
        carry(watch.fleet, watch.plan, teller, hosts)


def carry(fleet: Fleet, plan: Plan, teller: str, hosts: tuple[str, ...]) -> None:
    """Once. Whoever does not answer now hears it the next time."""
    answer = ask_all(fleet, plan, RUN_KNOWN, again=False, timeout_s=ANSWER_S, only=(teller,))[teller]
    if isinstance(answer, TfdeployError) or answer.known is None:
        return
    args = {host: {"known": answer.known} for host in hosts}
    ask_all(fleet, plan, RUN_TELL, args, again=False, timeout_s=ANSWER_S, only=hosts)


def in_words(teller: str, hosts: tuple[str, ...]) -> str:
    return f"{fold_names(hosts)} {'has' if len(hosts) == 1 else 'have'} not heard from {teller} that the run is over"
