"""Agents are started on hosts while something else is done here: modules are imported, a tree is
read."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from tfdeploy.operations.outcomes import split

if TYPE_CHECKING:
    from tfdeploy.errors import TfdeployError
    from tfdeploy.model.inventory import Host
    from tfdeploy.transport.protocols import AgentChannel, Fleet


def begin_connecting(
    fleet: Fleet, hosts: tuple[Host, ...]
) -> Callable[[], dict[str, TfdeployError]]:
    """The function waits for that, and returns the hosts that cannot be used."""
    outcomes: dict[str, AgentChannel | TfdeployError] = {}

    def connect() -> None:
        with contextlib.suppress(Exception):  # a bug shows again when the hosts are asked
            outcomes.update(fleet.each(hosts, lambda session: session.agent()))

    def failed() -> dict[str, TfdeployError]:
        thread.join()
        return split(outcomes)[1]

    thread = threading.Thread(target=connect, name="connect", daemon=True)
    thread.start()
    return failed
