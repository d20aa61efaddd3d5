"""Start agents on hosts in the background, while this machine imports modules or reads a tree."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from tfdeploy.machine.threads import start_thread
from tfdeploy.operations.outcomes import split_outcomes

if TYPE_CHECKING:
    from tfdeploy.model.inventory import Hosts
    from tfdeploy.transport.protocols import AgentChannel, Errors, Fleet, Outcomes


def begin_connecting(fleet: Fleet, hosts: Hosts) -> Callable[[], Errors]:
    """Start the agents of the hosts on a thread, and return a function that waits until all are up.

    The returned function returns the errors of the hosts that failed, by host name.
    """
    outcomes: Outcomes[AgentChannel] = {}

    def connect() -> None:
        # Ignore an unexpected error, because the next call to these hosts will raise it again.
        with contextlib.suppress(Exception):
            outcomes.update(fleet.each(hosts, lambda session: session.agent()))

    def wait_for_failed() -> Errors:
        thread.join()
        return split_outcomes(outcomes)[1]

    thread = start_thread(connect, name="connect")
    return wait_for_failed
