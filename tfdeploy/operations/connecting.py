"""Start agents on hosts in the background, while this machine imports modules or reads a tree."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from tfdeploy.operations.outcomes import split_outcomes

if TYPE_CHECKING:
    from tfdeploy.errors import TfdeployError
    from tfdeploy.model.inventory import Host
    from tfdeploy.transport.protocols import AgentChannel, Fleet


def begin_connecting(
    fleet: Fleet, hosts: tuple[Host, ...]
) -> Callable[[], dict[str, TfdeployError]]:
    """Start the agents on a thread, and return a function that waits for them.

    That function returns the errors of hosts that failed, by host name.
    """
    outcomes: dict[str, AgentChannel | TfdeployError] = {}

    def connect() -> None:
        # Ignore an unexpected error: the next call of the hosts will meet it again, and raise it.
        with contextlib.suppress(Exception):
            outcomes.update(fleet.each(hosts, lambda session: session.agent()))

    def wait_for_failed() -> dict[str, TfdeployError]:
        thread.join()
        return split_outcomes(outcomes)[1]

    thread = threading.Thread(target=connect, name="connect", daemon=True)
    thread.start()
    return wait_for_failed
