"""Start agents on hosts in the background, while this machine imports modules or reads a tree."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

from tfdeploy.machine.threads import start_thread
from tfdeploy.operations.outcomes import split_outcomes

if TYPE_CHECKING:
    from tfdeploy.model.inventory import Hosts
    from tfdeploy.transport.protocols import AgentChannel, Errors, Fleet, Outcomes


class Connecting:
    """The start of the agents of `hosts`, which runs on a thread of its own."""

    def __init__(self, fleet: Fleet, hosts: Hosts) -> None:
        self._fleet, self._hosts = fleet, hosts
        self._outcomes: Outcomes[AgentChannel] = {}
        self._is_missing = False  # True once a host lacks the agent
        # Set once a host lacks the agent, or once all agents have started or failed.
        self._is_known = threading.Event()
        self._thread = start_thread(self._connect, name="connect")

    def is_agent_missing(self) -> bool:
        """Wait until it is known whether any host lacks the agent, and return that.

        A host that lacks the agent of this version is new, or tfdeploy was upgraded.
        """
        self._is_known.wait()
        return self._is_missing

    def wait_for_failed(self) -> Errors:
        """Wait until all agents are up, and return the errors of the hosts that failed."""
        self._thread.join()
        return split_outcomes(self._outcomes)[1]

    def _connect(self) -> None:
        try:
            # Ignore an unexpected error, because the next call to these hosts will raise it again.
            with contextlib.suppress(Exception):
                self._outcomes.update(
                    self._fleet.each(self._hosts, lambda session: session.agent(self._note_missing))
                )
        finally:
            self._is_known.set()

    def _note_missing(self) -> None:
        self._is_missing = True
        self._is_known.set()
